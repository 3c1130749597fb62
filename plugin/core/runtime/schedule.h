// When a round is due, by COLLAB_SYNC_EVERY.
//
// By steps every rank reaches the same answer alone. By time only the leader looks at the clock; it announces
// the step two ahead of its own, which no other rank of the site can have passed: their gradients need its. A round
// in between voids the announcement.
// Pure. Threads: one caller at a time. Ownership: its own counters.
#pragma once

#include <cstdint>

#include "collab/clock.h"
#include "collab/config.h"
#include "collab/status.h"

namespace collab {

class SyncSchedule {
 public:
  explicit SyncSchedule(SyncEvery every) : every_(every) {}

  [[nodiscard]] bool by_time() const { return every_.steps == 0; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint64_t steps_since_round() const { return steps_ - steps_at_round_; }

  // One more inner step has been taken.
  void count_step() { ++steps_; }

  // By steps: is a round due now?
  [[nodiscard]] bool due_by_steps() const { return !by_time() && steps_since_round() >= intervals_ * every_.steps; }

  // By time, leader only: the step to announce, or 0 when it is too early or one is announced already.
  [[nodiscard]] std::uint64_t step_to_announce(TimePoint now) {
    if (!by_time() || now - round_at_ < intervals_ * every_.time) return 0;
    return step_to_announce_early();
  }
  // Leader only: a round is wanted as soon as no rank of the site can have passed it; 0 when one is announced already.
  [[nodiscard]] std::uint64_t step_to_announce_early() {
    if (announced_ >= steps_ && stands(announced_)) return 0;
    announced_ = steps_ + kAhead;
    return announced_;
  }
  // By steps: an interval ends with this step, and the leader may want a round early.
  [[nodiscard]] bool ends_interval() const { return !by_time() && steps_since_round() % every_.steps == 0; }
  // Leader only, where there are no rounds: would one be due by now?
  [[nodiscard]] bool would_be_due(TimePoint now) const {
    return by_time() ? now - round_at_ >= every_.time : steps_since_round() >= every_.steps;
  }
  // Is a round due now, given the leader's announcement? An announcement that was passed is an error: the
  // ranks of the site do not step together.
  [[nodiscard]] Result<bool> due_by_announcement(std::uint64_t announced) const;

  // A round has ended (or round 0): counting starts again. The next one is due after so many intervals.
  void round_ended(TimePoint now, std::uint32_t intervals) {
    steps_at_round_ = steps_;
    round_at_ = now;
    intervals_ = intervals;
  }

 private:
  static constexpr std::uint64_t kAhead = 2;  // steps
  // Was it announced after the last round?
  [[nodiscard]] bool stands(std::uint64_t announced) const { return announced > steps_at_round_ + kAhead; }

  SyncEvery every_;
  std::uint32_t intervals_ = 1;
  std::uint64_t steps_ = 0;
  std::uint64_t steps_at_round_ = 0;
  std::uint64_t announced_ = 0;  // a step still to come, or this one
  TimePoint round_at_{};
};

}  // namespace collab
