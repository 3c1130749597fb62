// When memory that a burst has left on the heap is given back to the system: once little of it is held any more, and
// not often.
//
// Threads: one at a time. Ownership: nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "collab/clock.h"

namespace collab::tcp {

class TrimPolicy {
 public:
  static constexpr std::size_t kMuch = std::size_t{64} << 20;
  static constexpr std::uint64_t kManyConnections = 200;
  static constexpr Duration kEvery = std::chrono::seconds(10);

  // At each tick, so that no burst is over before it has been seen. `held`: bytes of messages; `came`: connections so
  // far. True: give memory back now.
  [[nodiscard]] bool is_due(TimePoint now, std::size_t held, std::uint64_t came) {
    if (held > kMuch || came > came_at_trim_ + kManyConnections) owes_ = true;
    if (!owes_ || held >= kMuch / 4 || now < next_) return false;
    owes_ = false;
    came_at_trim_ = came;
    next_ = now + kEvery;
    return true;
  }
  [[nodiscard]] bool owes() const { return owes_; }

 private:
  bool owes_ = false;
  std::uint64_t came_at_trim_ = 0;
  TimePoint next_{};
};

}  // namespace collab::tcp
