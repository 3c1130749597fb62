// How long a step and a round take at this site: for the leader, which may choose the period by it, and for the status.
//
// A step's time is the time of training, without calls in which the script stands still. A round's time runs from its
// trigger until its mean is in the parameters. For rounds behind the training, that is the merge.
// Pure. Threads: one caller at a time. Ownership: its own numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collab/clock.h"

namespace collab {

class StepPace {
 public:
  // A round begins (or the training, with no steps so far).
  void triggered(TimePoint now, std::uint64_t steps) {
    if (steps > steps_) step_ = (now - since_ - stood_) / static_cast<Duration::rep>(steps - steps_);
    since_ = now;
    steps_ = steps;
    stood_ = {};
  }
  void stood_still(Duration time) { stood_ += time; }
  // No round came about: nothing was measured.
  void round_over(TimePoint now, bool came_about) { round_ = came_about ? now - since_ : Duration{}; }

  // Microseconds; 0: not known.
  [[nodiscard]] std::uint64_t step_us() const { return whole(step_); }
  [[nodiscard]] std::uint64_t round_us() const { return whole(round_); }

 private:
  static std::uint64_t whole(Duration time) {
    return static_cast<std::uint64_t>(
        std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(time).count()));
  }

  TimePoint since_{};  // the last trigger
  std::uint64_t steps_ = 0;
  Duration stood_{};
  Duration step_{};
  Duration round_{};
};

}  // namespace collab
