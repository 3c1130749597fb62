// When a round is due, by COLLAB_SYNC_EVERY.
//
// With a period in steps every rank reaches the same answer alone. With a period in time only the leader looks at the
// clock. It announces a step two ahead of its own. No other rank of the site can have passed that step: a rank that
// reaches it waits until the leader is two behind (SiteChannel). A round in between voids the announcement. If rounds
// run behind the training (COLLAB_OVERLAP), the next one is counted from the last trigger, not from its merge. The
// number of steps between two rounds follows from what all sites share: the setting, or the leader's choice (auto), and
// the number of the round (COLLAB_SYNC_WARMUP, COLLAB_SYNC_ANNEAL). Pure. Threads: one caller at a time. Ownership: its
// own counters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "collab/clock.h"
#include "collab/config.h"
#include "collab/status.h"
#include "collab/types.h"

namespace collab {

// The time from one round to the next. COLLAB_SYNC_EVERY is the period of each fragment. If the swarm's leader chooses
// the period, that is already the time to the next round.
[[nodiscard]] SyncEvery between_rounds(SyncEvery every, std::uint32_t fragments);
// Steps from one round of an element to the next; 0: by time. If the leader chooses, this holds until it has chosen.
[[nodiscard]] inline std::uint64_t period_of_elements(const SyncEvery& every, std::uint32_t fragments) {
  return between_rounds(every, fragments).steps * fragments;
}

class SyncSchedule {
 public:
  static constexpr std::uint64_t kAhead = 2;  // an announced step is so many steps ahead

  explicit SyncSchedule(SyncEvery every, std::uint32_t warmup = 0, SyncAnneal anneal = {})
      : every_(every), warmup_(warmup), anneal_(anneal), period_(every.steps) {}

  [[nodiscard]] bool by_time() const { return every_.steps == 0; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint64_t steps_since_round() const { return steps_ - steps_at_round_; }

  // One more inner step has been taken.
  void count_step() { ++steps_; }

  // By steps: is a round due now?
  [[nodiscard]] bool due_by_steps() const { return !by_time() && steps_since_round() >= period_; }

  // By time, leader only: the step to announce, or 0 when it is too early or one is announced already.
  [[nodiscard]] std::uint64_t step_to_announce(TimePoint now) {
    if (!by_time() || now - round_at_ < every_.time) return 0;
    return step_to_announce_early();
  }
  // Leader only: the earliest step that no rank of the site can have passed; 0 when a step is announced already.
  [[nodiscard]] std::uint64_t step_to_announce_early() {
    if (announced_ >= steps_ && stands(announced_)) return 0;
    announced_ = steps_ + kAhead;
    return announced_;
  }
  // Leader only, while there are no rounds: would one be due by now?
  [[nodiscard]] bool would_be_due(TimePoint now) const {
    return by_time() ? now - round_at_ >= every_.time : due_by_steps();
  }
  // Is a round due now, given the leader's announcement? An announcement that was passed is an error: the
  // ranks of the site do not step together.
  [[nodiscard]] Result<bool> due_by_announcement(std::uint64_t announced) const;

  // This round has ended (or round 0): counting starts again. `period`: the leader's choice of steps until the next
  // one; 0: no choice, as before.
  void round_ended(TimePoint now, RoundId round, std::uint32_t period) {
    round_started(now);
    round_merged(round, period);
  }
  // No round came about, and it stays due: the next step asks again.
  void round_put_off() { steps_at_call_ = steps_; }
  // The two ends of a round behind the training: counting starts again with the first.
  void round_started(TimePoint now) {
    steps_at_round_ = steps_at_call_ = steps_;
    round_at_ = now;
  }
  void round_merged(RoundId round, std::uint32_t period) {
    steps_at_call_ = steps_;
    if (every_.automatic && period != 0) {
      every_.steps = period;
      told_ = true;
    }
    period_ = anneal_.steps > 0 ? annealed(round.value) : warm(round.value);
  }
  // The period of a fragment that is set, or the leader's choice.
  [[nodiscard]] std::string period_text() const;
  // Leader only, while a round is in flight: is another one due by now, with the period that is set? A shorter one (in
  // the first and last rounds, or before the leader has chosen) may well be less than a round takes.
  [[nodiscard]] bool overdue(TimePoint now) const {
    if (by_time()) return now - round_at_ >= every_.time;
    const bool chosen = !every_.automatic || told_;
    return chosen && steps_since_round() >= every_.steps;
  }

 private:
  // Was it announced after the ranks' last call?
  [[nodiscard]] bool stands(std::uint64_t announced) const { return announced > steps_at_call_ + kAhead; }

  // The first rounds come often: after each step, then the period doubles up to the one that is set.
  [[nodiscard]] std::uint64_t warm(std::uint64_t rounds) const {
    constexpr std::uint64_t kMostDoublings = 63;
    if (rounds >= warmup_) return every_.steps;
    return std::max<std::uint64_t>(1, every_.steps >> std::min(warmup_ - rounds, kMostDoublings));
  }

  // The period after this round, in a run whose period shrinks at the end.
  [[nodiscard]] std::uint64_t annealed(std::uint64_t rounds);
  [[nodiscard]] std::uint64_t period_at(std::uint64_t round, std::uint64_t trained) const;

  SyncEvery every_;
  bool told_ = false;     // the leader has chosen
  std::uint32_t warmup_;  // rounds
  SyncAnneal anneal_;
  std::uint64_t walked_ = 0;   // rounds whose steps are counted in trained_
  std::uint64_t trained_ = 0;  // steps of a site that took part in all rounds before round walked_
  std::uint64_t period_;       // steps until the next round
  std::uint64_t steps_ = 0;
  std::uint64_t steps_at_round_ = 0;  // at its trigger
  std::uint64_t steps_at_call_ = 0;   // at the last trigger or merge
  std::uint64_t announced_ = 0;       // a step still to come, or this one
  TimePoint round_at_{};
};

}  // namespace collab
