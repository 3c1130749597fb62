// The period that COLLAB_SYNC_EVERY=auto chooses: the fewest steps from round to round with which rounds hold up the
// training by no more than COLLAB_TARGET_OVERHEAD. With samples:N: the steps in which all sites train on N samples.
//
//   the first, or a predecessor's --a round of these sites was measured--> by the median of the last three
//
// If training waits, a round takes a part of the time: round / (period * step). If rounds run behind the training, a
// round has to be merged before the next is due. Changes of less than a tenth are not made: measurements vary by more.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <deque>

#include "collab/config.h"

namespace collab::protocol {

// The pace of the slowest member of a round.
struct Pace {
  double step = 0;   // seconds
  double round = 0;  // from all being ready to the mean in all parameters
  bool operator==(const Pace&) const = default;
};

struct PeriodRule {
  double target = default_config().target_overhead;  // part of the time
  bool behind = false;                               // rounds run behind the training
  std::uint32_t first = 0;                           // before a round was measured; 0: the period is no leader's choice
  std::uint64_t samples = 0;  // of all sites, from round to round; 0: by the time that rounds take
};

// What a pace needs, before it is rounded up and bounded.
[[nodiscard]] double steps_needed(const Pace& pace, const PeriodRule& rule);

class PeriodChoice {
 public:
  [[nodiscard]] std::uint32_t in_force() const { return in_force_; }  // steps; 0: none yet
  [[nodiscard]] const Pace& pace() const { return pace_; }            // it was chosen by, or kept in spite of
  void go_on_from(std::uint32_t period) { in_force_ = period; }
  void other_sites() { rounds_.clear(); }  // what was measured was not theirs
  // A round was measured. True: the period is another one now, or was chosen for the first time.
  bool measured(const Pace& slowest, const PeriodRule& rule);
  // All sites together train on so many samples a step. Likewise.
  bool counted(double samples_a_step, const PeriodRule& rule);

 private:
  friend struct Inside;
  std::uint32_t in_force_ = 0;
  Pace pace_;
  bool chosen_ = false;
  std::deque<Pace> rounds_;  // the last ones, of the same sites
};

}  // namespace collab::protocol
