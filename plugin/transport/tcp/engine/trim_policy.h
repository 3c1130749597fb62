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
  static constexpr Duration kCountFor = std::chrono::seconds(2);
  static constexpr Duration kEvery = std::chrono::seconds(10);

  // At each tick, so that no burst is over before it has been seen. `held`: bytes of messages; `came`: connections so
  // far, many of which within kCountFor are a burst as well. True: give memory back now.
  [[nodiscard]] bool is_due(TimePoint now, std::size_t held, std::uint64_t came) {
    if (held > kMuch || came > came_before_ + kManyConnections) owes_ = true;
    if (now >= count_until_) {
      came_before_ = came;
      count_until_ = now + kCountFor;
    }
    if (!owes_ || held >= kMuch / 4 || now < next_) return false;
    owes_ = false;
    next_ = now + kEvery;
    return true;
  }
  [[nodiscard]] bool owes() const { return owes_; }

 private:
  bool owes_ = false;
  std::uint64_t came_before_ = 0;
  TimePoint count_until_{}, next_{};
};

}  // namespace collab::tcp
