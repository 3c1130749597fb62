// A rank's progress through the rounds, and the part of its training that is in none of them yet. Both are the same at
// all ranks of a site: each counts the same steps, and takes the leader's decision at the end of each call.
//
//   the call                                      afterwards
//   a round that averaged                         all steps before it are common to all sites
//   a round that was skipped, or averaged         its steps are carried: they count in the next one. The next step asks
//   nothing                                       again where the leader says so (`stays_due`)
//   the begin of a round behind the training      in flight: its steps count if it commits; those after it are new
//   its merge                                     all steps before its begin are common. The parameters hold what was
//                                                 trained since, so they are not the anchor until the next round
//   a round of one of several fragments           as above for that fragment; all are common once each has had a turn
//                                                 with no step in between
//
// Pure. Threads: one caller at a time. Ownership: its own counters.
#pragma once

#include <cstdint>

#include "core/runtime/schedule.h"
#include "core/runtime/site_channel.h"

namespace collab {

class RankRounds {
 public:
  RankRounds(const Config& config, std::uint32_t fragments);

  // ---- what happens
  void begin(const Decision& joined, TimePoint now);  // the anchor of that round is in place
  void count_step();
  void end_call(const Decision& decided, TimePoint now);
  void pass(TimePoint now) { schedule_.round_ended(now, round_, 0); }  // a round was due while the site trains alone

  // ---- where they are
  [[nodiscard]] const SyncSchedule& schedule() const { return schedule_; }
  [[nodiscard]] SyncSchedule& schedule() { return schedule_; }  // for the leader's announcements
  [[nodiscard]] std::uint32_t fragments() const { return fragments_; }
  [[nodiscard]] RoundId round() const { return round_; }
  [[nodiscard]] std::uint64_t steps() const { return schedule_.steps(); }
  [[nodiscard]] bool in_flight() const { return in_flight_; }
  [[nodiscard]] bool skipped() const { return skipped_; }  // the last call ended without an average
  [[nodiscard]] bool has_left() const { return left_; }    // the last round of a site that was asked to leave is over
  // Steps since the last round that averaged; if a round is in flight, only those up to its begin.
  [[nodiscard]] std::uint64_t steps_to_count() const;

  // ---- what is left to do
  // With rounds behind the training: the next one is due to begin, by the number of steps.
  [[nodiscard]] bool is_due_behind() const { return overlap_ && schedule_.due_by_steps(); }
  // Steps so far that are not common yet; at least one if a fragment was averaged earlier than others.
  [[nodiscard]] std::uint64_t steps_not_common() const;
  // The round after which all steps so far are common, if each is waited for; 0: they are common already.
  [[nodiscard]] RoundId settles_at() const;
  // Whether the site needs a round before it ends, and how many to wait for once none is in flight or due any more.
  // `drained`: a round that was due behind the training has just ended.
  [[nodiscard]] bool ends_with_round() const;
  [[nodiscard]] std::uint32_t last_turns(bool drained) const;

 private:
  const bool overlap_;
  const std::uint32_t fragments_;  // that take turns: each is averaged once in a period
  SyncSchedule schedule_;
  RoundId round_;
  std::uint64_t carried_steps_ = 0;  // of past calls that ended without an average
  bool skipped_ = false;
  std::uint32_t turns_ = 0;  // rounds waited for since the last step, at most one for each fragment
  bool left_ = false;
  bool in_flight_ = false;             // a round behind the training has begun and is not merged
  std::uint64_t steps_in_flight_ = 0;  // steps to be counted if the round commits
  bool merged_ = false;                // since the merge the parameters are not the anchor
};

}  // namespace collab
