// A part of a buffer as a buffer of its own: what a transport sends of it.
//
// Threads: as the buffer it is a part of. Ownership: shares that buffer.
#pragma once

#include <memory>
#include <utility>

#include "core/protocol/meeting_actions.h"

namespace collab {

class PayloadBuffer final : public Buffer {
 public:
  explicit PayloadBuffer(protocol::Payload payload) : payload_(std::move(payload)) {}
  [[nodiscard]] std::span<std::byte> bytes() override {
    return payload_.buffer->bytes().subspan(payload_.offset, payload_.bytes);
  }

 private:
  protocol::Payload payload_;
};

// Null for no bytes.
[[nodiscard]] inline BufferPtr as_buffer(const protocol::Payload& payload) {
  if (payload.bytes == 0) return nullptr;
  if (payload.offset == 0 && payload.bytes == payload.buffer->bytes().size()) return payload.buffer;
  return std::make_shared<PayloadBuffer>(payload);
}

}  // namespace collab
