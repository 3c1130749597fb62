// Sends chunks with their payloads, each under a token that identifies it once it has been sent.
//
// Threads: one caller at a time. Ownership: borrows the transport.
#pragma once

#include <cstdint>
#include <utility>

#include "collab/transport.h"
#include "core/wire/encoding.h"

namespace collab {

class ChunkSender {
 public:
  explicit ChunkSender(Transport& transport) : transport_(transport) {}

  [[nodiscard]] std::uint64_t next_token() { return next_token_++; }
  // Returns the bytes of head and payload. `follows`: bytes that are still to come over this link.
  std::size_t send(LinkId link, const wire::Chunk& chunk, BufferPtr payload, std::uint64_t token,
                   std::uint64_t follows = 0) {
    TransportMessage message{
        .lane = Lane::kData, .head = wire::encode(chunk), .payload = std::move(payload), .more = follows};
    const std::size_t bytes = message.bytes();
    bytes_ += bytes;
    transport_.send(link, std::move(message), token);
    return bytes;
  }
  // A message without a payload. Nothing reports that it has been sent.
  void send_control(LinkId link, const wire::Message& message) {
    transport_.send(link, {.lane = Lane::kControl, .head = wire::encode(message), .payload = nullptr}, 0);
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of chunks, so far

 private:
  Transport& transport_;
  std::uint64_t next_token_ = 1;
  std::uint64_t bytes_ = 0;
};

}  // namespace collab
