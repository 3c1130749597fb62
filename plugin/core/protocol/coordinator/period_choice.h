// The period that COLLAB_SYNC_EVERY=auto chooses: the fewest steps between rounds that keep the overhead of rounds
// within COLLAB_TARGET_OVERHEAD. With samples:N: the steps in which all sites together train on N samples.
//
//   the first, or a predecessor's --a round of these sites was measured--> by the median of the last three
//
// If training waits for rounds, the overhead is round / (period * step). If rounds run behind the training, a round has
// to be merged before the next is due. Changes of less than a tenth are not made: measurements vary by more.
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
  double round = 0;  // seconds from all being ready to the mean in all parameters
  bool operator==(const Pace&) const = default;
};

struct PeriodRule {
  double target = default_config().target_overhead;  // overhead, as a part of the time
  bool behind = false;                               // rounds run behind the training
  std::uint32_t first = 0;                           // before a round was measured; 0: the leader chooses no period
  std::uint64_t samples = 0;                         // of all sites between two rounds; 0: choose by the time of rounds
};

// The steps that a pace needs, before rounding up and clamping.
[[nodiscard]] double steps_needed(const Pace& pace, const PeriodRule& rule);

class PeriodChoice {
 public:
  [[nodiscard]] std::uint32_t in_force() const { return in_force_; }  // steps; 0: none yet
  [[nodiscard]] const Pace& pace() const { return pace_; }            // the period was chosen or kept by it
  void go_on_from(std::uint32_t period) { in_force_ = period; }
  void other_sites() { rounds_.clear(); }  // other sites were measured
  // Takes a round's measurement. True if the period changed, or was chosen for the first time.
  bool measured(const Pace& slowest, const PeriodRule& rule);
  // Takes the samples that all sites together train on in a step. Returns the same as measured().
  bool counted(double samples_a_step, const PeriodRule& rule);

 private:
  friend struct Inside;
  std::uint32_t in_force_ = 0;
  Pace pace_;
  bool chosen_ = false;
  std::deque<Pace> rounds_;  // the last rounds, all of the same sites
};

}  // namespace collab::protocol
