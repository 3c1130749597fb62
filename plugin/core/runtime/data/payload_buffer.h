// Transport messages for a collective hub's sends. PayloadBuffer makes a part of a buffer a buffer of its own.
//
// Threads: as for the whole buffer. Ownership: shares that buffer.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "collab/transport.h"
#include "core/protocol/collectives/hub_actions.h"
#include "core/wire/encoding.h"

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

// Heartbeats overtake the data of collectives.
[[nodiscard]] inline TransportMessage message_of(const protocol::HubSend& action, std::vector<std::byte> head) {
  const bool beat = std::holds_alternative<wire::Heartbeat>(action.message);
  return {.lane = beat ? Lane::kControl : Lane::kData, .head = std::move(head), .payload = as_buffer(action.payload)};
}
[[nodiscard]] inline TransportMessage message_of(const protocol::HubSend& action) {
  return message_of(action, wire::encode(action.message));
}

}  // namespace collab
