// When a caller that stands still is told what it waits for: after 10, 30 and 60 s, then every minute.
//
// Threads: one. Ownership: none.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "collab/clock.h"

namespace collab {

class WaitNotices {
 public:
  void begin(TimePoint now) {
    begun_ = now;
    told_ = 0;
    next_ = now + kFirst[0];
  }
  void end() { next_ = kNever; }

  // kNever while nobody waits.
  [[nodiscard]] TimePoint next() const { return next_; }

  // True once for each notice that is due; `waited` is how long the wait has been.
  bool due(TimePoint now, Duration& waited) {
    if (now < next_) return false;
    waited = now - begun_;
    while (next_ <= now) {
      ++told_;
      next_ = told_ < kFirst.size() ? begun_ + kFirst[told_] : next_ + kThen;
    }
    return true;
  }

 private:
  static constexpr std::array<std::chrono::seconds, 3> kFirst{std::chrono::seconds(10), std::chrono::seconds(30),
                                                              std::chrono::seconds(60)};
  static constexpr std::chrono::seconds kThen{60};

  TimePoint begun_{};
  TimePoint next_ = kNever;
  std::size_t told_ = 0;
};

}  // namespace collab
