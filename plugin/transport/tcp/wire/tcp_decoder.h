// Takes the bytes of one connection as they arrive, and passes each frame to a sink.
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
  // Returns where the segment's data goes: a span as long as the data, or nothing to skip the data.
  virtual Result<std::optional<std::span<std::byte>>> on_segment_begin(const SegmentHeader& header) = 0;
  // All data of the segment that began last has arrived. `placed` is false if the data was skipped.
  virtual Status on_segment_end(const SegmentHeader& header, bool placed) = 0;
  // Called for every other frame.
  virtual Status on_frame(FrameType type, std::span<const std::byte> body) = 0;
};

class FrameDecoder {
 public:
  // An error is final: the bytes do not follow this format.
  Status feed(std::span<const std::byte> bytes, FrameSink& sink);

  [[nodiscard]] std::span<std::byte> room() { return place_; }
  Status filled(std::size_t bytes, FrameSink& sink);  // bytes written to the start of room()

  // Skips the rest of the current segment.
  void forget_place();
  // The number of frames and segments completed since the last call. Even a small one costs time.
  [[nodiscard]] std::size_t take_count() { return std::exchange(count_, 0); }

 private:
  enum class State : std::uint8_t { kPreface, kPrefix, kFields, kBody, kData };

  Status item_complete(FrameSink& sink);
  Status begin_segment(FrameSink& sink);
  Status end_segment(FrameSink& sink);
  void expect(State state, std::size_t bytes);

  State state_ = State::kPreface;
  std::array<std::byte, kMaxBodyBytes> item_{};  // the item being read, except a segment's data
  std::size_t have_ = 0;
  std::size_t want_ = kPrefaceBytes;  // size of the item, or bytes left of the segment's data
  Prefix prefix_;
  std::optional<SegmentHeader> segment_;
  std::span<std::byte> place_;
  bool placed_ = false;
  std::size_t count_ = 0;
};

}  // namespace collab::tcp
