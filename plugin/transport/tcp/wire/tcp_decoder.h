// Takes the bytes of one connection as they come, and tells a sink of each frame.
//
// The data of a segment is written once, where the sink says it belongs. While a segment is read, room() is that place,
// so that a socket can be read straight into it. Bytes may come in pieces of any size.
// Threads: one at a time. Ownership: borrows the sink during each call. While a segment is read, it also borrows the
// place that the sink named; forget_place() takes that back.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "transport/tcp/wire/tcp_wire.h"

namespace collab::tcp {

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Where the segment's data goes: as long as the data, or nothing if it is to be passed over.
  virtual Result<std::optional<std::span<std::byte>>> on_segment_begin(const SegmentHeader& header) = 0;
  // All data of the segment that began last have come. `placed` is false if they were passed over.
  virtual Status on_segment_end(const SegmentHeader& header, bool placed) = 0;
  // Every other frame.
  virtual Status on_frame(FrameType type, std::span<const std::byte> body) = 0;
};

class FrameDecoder {
 public:
  // An error is final: the bytes do not follow this format.
  Status feed(std::span<const std::byte> bytes, FrameSink& sink);

  [[nodiscard]] std::span<std::byte> room() { return place_; }
  Status filled(std::size_t bytes, FrameSink& sink);  // of room(), from its beginning

  // The rest of the current segment is passed over.
  void forget_place();
  // Frames and segments that have ended since the last call. Each costs time, however small it is.
  [[nodiscard]] std::size_t take_count() { return std::exchange(count_, 0); }

 private:
  enum class State : std::uint8_t { kPreface, kPrefix, kFields, kBody, kData };

  Status item_complete(FrameSink& sink);
  Status begin_segment(FrameSink& sink);
  Status end_segment(FrameSink& sink);
  void expect(State state, std::size_t bytes);

  State state_ = State::kPreface;
  std::array<std::byte, kMaxBodyBytes> item_{};  // what is being read, unless it is a segment's data
  std::size_t have_ = 0;
  std::size_t want_ = kPrefaceBytes;  // of the item, or of the segment's data left
  Prefix prefix_;
  std::optional<SegmentHeader> segment_;
  std::span<std::byte> place_;
  bool placed_ = false;
  std::size_t count_ = 0;
};

}  // namespace collab::tcp
