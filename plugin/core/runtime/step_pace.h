// How long a step and a round take at this site, and what share of the time rounds take: for the leader, which may use
// them to choose the period, and for the status.
//
// A step's time is the time of training, without calls in which the script stands still. A round's time runs from its
// trigger until its mean is in the parameters. For rounds behind the training, that is the merge.
// Pure. Threads: one caller at a time. Ownership: its own numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collab/clock.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace collab {

class StepPace {
 public:
  // The training begins.
  void begin(TimePoint now, std::uint64_t steps) {
    since_ = measured_from_ = now;
    steps_ = steps;
    stood_ = stood_since_ = behind_ = merged_ = {};
  }
  // A round begins. If several begin at one step, their time counts for the steps that follow.
  void triggered(TimePoint now, std::uint64_t steps) {
    since_ = now;
    stood_since_ = {};
    if (steps == steps_) return;
    const Duration span = now - measured_from_;
    measured_.step_us = whole((span - stood_) / static_cast<Duration::rep>(steps - steps_));
    measured_.waited_ppm = share(stood_, span);
    measured_.overlapped_ppm = share(behind_, span);
    measured_.merged_ppm = share(merged_, span);
    begin(now, steps);
  }
  // `merging`: the part of `time` in which a round's result was merged into the parameters.
  void stood_still(Duration time, Duration merging) {
    stood_ += time;
    stood_since_ += time;
    merged_ += merging;
  }
  void round_over(TimePoint now, bool came_about) {
    behind_ += now - since_ - stood_since_;
    measured_.round_us = came_about ? whole(now - since_) : 0;  // else nothing was measured
  }

  [[nodiscard]] const wire::Measured& measured() const { return measured_; }

 private:
  static std::uint64_t whole(Duration time) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(0, us)), wire::kMaxMeasuredUs);
  }
  static std::uint32_t share(Duration part, Duration whole) {
    const double of_one =
        whole.count() > 0 ? static_cast<double>(part.count()) / static_cast<double>(whole.count()) : 0;
    return static_cast<std::uint32_t>(std::clamp(of_one, 0.0, 1.0) * wire::kMillion);
  }

  TimePoint since_{};       // the last trigger
  Duration stood_since_{};  // since the last trigger
  // The first trigger at its step, and the totals since.
  TimePoint measured_from_{};
  std::uint64_t steps_ = 0;
  Duration stood_{}, behind_{}, merged_{};
  wire::Measured measured_;  // without the rates of lines and the loss
};

}  // namespace collab
