// How much is read from a connection before others have their turn. Small frames cost more than their bytes. So a peer
// that sends many of them is read in small portions.
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
  // How many bytes to read at once if there is room for `bytes`.
  [[nodiscard]] std::size_t most(std::size_t bytes) const {
    return many_frames_ ? std::min(bytes, kReadOfMany) : bytes;
  }
  void took(std::size_t bytes, std::size_t frames) {
    bytes_ += bytes;
    frames_ += frames;
    many_frames_ = many_frames_ || frames_ >= kFramesAtOnce;
  }
  // Ends the turn: all available bytes have been read, or as many as a turn allows.
  void end() {
    if (frames_ < kFramesAtOnce / 2) many_frames_ = false;
  }

 private:
  static constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
  static constexpr std::size_t kFramesAtOnce = 1024;
  static constexpr std::size_t kReadOfMany = std::size_t{16} << 10;

  std::size_t bytes_ = 0;
  std::size_t frames_ = 0;
  bool many_frames_ = false;  // a turn ended by its number of frames, and every turn since had many
};

}  // namespace collab::tcp
