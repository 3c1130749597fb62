// Decides when an engine gives back memory that a burst has left on the heap (trim_debt.h). This is rare.
//
// Threads: one at a time. Ownership: nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "collab/clock.h"
#include "core/base/trim_debt.h"

namespace collab::tcp {

class TrimPolicy {
 public:
  static constexpr std::uint64_t kManyConnections = 200;
  static constexpr Duration kCountFor = std::chrono::seconds(2);
  static constexpr Duration kEvery = std::chrono::seconds(10);

  // Called at each tick, so that it sees each burst. `held`: bytes of messages. `came`: connections so far; many of
  // them within kCountFor are a burst too. True: give memory back now.
  [[nodiscard]] bool is_due(TimePoint now, std::size_t held, std::uint64_t came) {
    debt_.holds(held);
    if (came > came_before_ + kManyConnections) debt_.burst();
    if (now >= count_until_) {
      came_before_ = came;
      count_until_ = now + kCountFor;
    }
    if (now < next_ || !debt_.settle(held)) return false;
    next_ = now + kEvery;
    return true;
  }
  [[nodiscard]] bool owes() const { return debt_.owes(); }

 private:
  TrimDebt debt_;
  std::uint64_t came_before_ = 0;
  TimePoint count_until_{}, next_{};
};

}  // namespace collab::tcp
