// How much of a connection is read before others have their turn. Small frames cost more than their bytes: a peer
// that sends many is read little at a time.
//
// Threads: one at a time. Ownership: plain values, a connection's own.
#pragma once

#include <algorithm>
#include <cstddef>

namespace collab::tcp {

class ReadTurn {
 public:
  void begin() { bytes_ = frames_ = 0; }
  [[nodiscard]] bool has_budget() const { return bytes_ < kBytesAtOnce && frames_ < kFramesAtOnce; }
  // How much to read at once into room for `bytes`.
  [[nodiscard]] std::size_t most(std::size_t bytes) const {
    return many_frames_ ? std::min(bytes, kReadOfMany) : bytes;
  }
  void took(std::size_t bytes, std::size_t frames) {
    bytes_ += bytes;
    frames_ += frames;
    many_frames_ = many_frames_ || frames_ >= kFramesAtOnce;
  }
  // All that was there has been read, or as much as a turn allows.
  void end() {
    if (frames_ < kFramesAtOnce / 2) many_frames_ = false;
  }

 private:
  static constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
  static constexpr std::size_t kFramesAtOnce = 1024;
  static constexpr std::size_t kReadOfMany = std::size_t{16} << 10;

  std::size_t bytes_ = 0;
  std::size_t frames_ = 0;
  bool many_frames_ = false;  // a turn ended by their number, and none since was of few
};

}  // namespace collab::tcp
