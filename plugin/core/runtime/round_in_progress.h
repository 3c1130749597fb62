// A round at this site, from its trigger to the report: what it did to the parameters, what it counted, how long it
// took.
//
// Threads: exchanging() and period() for any; else the loop's. Ownership: plain values.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "core/arena/arena.h"
#include "core/protocol/actions.h"
#include "core/protocol/fragments.h"
#include "core/runtime/data/anchor_tensors.h"
#include "core/runtime/data/line_traffic.h"
#include "core/runtime/events_file.h"
#include "core/runtime/tensors/parameter_change.h"

namespace collab {

// What a round cost the training, in seconds. Without overlap the training stands still from the trigger on.
struct TrainingTimes {
  double overlap = 0;  // of a round behind the training: from the trigger to the merge
  double stall = 0;    // the script waited
  double merge = 0;    // part of the stall, with overlap: the result was put into the parameters
};

struct RoundTimes {     // in seconds
  double whole = 0;     // from its first exchange to parameters in place
  double exchange = 0;  // from the first payload byte to the last
  TrainingTimes training;
};

struct RoundReport {
  RoundId round;
  std::uint32_t attempts = 0;
  std::vector<std::string> members;
  std::vector<std::string> contributors;
  std::uint64_t samples = 0;  // trained by this process and in the anchor by now, or in this round's fragment of it
  ParameterChange change = ParameterChange::kUnchanged;
  ElementRange range = kWholeVector;  // the elements that changed
  std::uint32_t period = 0;           // steps until the next round, chosen by the leader; 0: it chose none
  std::string skipped;                // why there was no round; empty: there was one
  std::string unfit;                  // why our delta was given up and the anchor taken outright; empty: it was not
  Digest state;
  float outer_lr = 0;       // of the outer step; 0: none was taken
  double clipped_norm = 0;  // of the mean delta where it was clipped; 0: it was not
  RoundTimes times;
  RoundTraffic traffic;
};

class RoundInProgress {
 public:
  // Returns the steps since the last trigger.
  std::uint64_t begin(const protocol::Trigger& trigger, TimePoint now);
  void exchange_begins(TimePoint now) {
    began_ = std::min(began_, now);
    exchanging_ = true;
  }
  void exchange_ends() { exchanging_ = false; }
  void contribution_unfit(std::string why) { unfit_because_ = std::move(why); }

  // The arena's other slot changes: the ranks can no longer repeat from it what was done before.
  void slot_changes() { moved_ = moved_ || report_.change == ParameterChange::kRebased; }
  void applied(protocol::Base base, const AppliedCommit& commit);
  void rebased(protocol::Base base);
  void changes(ParameterChange change, ElementRange range = kWholeVector);
  // The site's ranks hold the parameters of the trigger and can repeat the change. Else they get the parameters.
  [[nodiscard]] bool can_be_repeated(std::uint64_t elements) const;

  void skipped(const std::string& why, const std::optional<SealedAnchor>& sealed, TimePoint now);
  void done(const protocol::RoundDone& done, const RoundTraffic& traffic, TimePoint now);
  void merged(const TrainingTimes& times) { report_.times.training = times; }

  // As in RoundReport, by a join or the last round.
  void joined(std::uint32_t period) { period_ = period; }
  [[nodiscard]] std::uint32_t period() const { return period_; }
  [[nodiscard]] bool exchanging() const { return exchanging_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }  // at the trigger
  [[nodiscard]] const RoundReport& report() const { return report_; }

 private:
  RoundReport report_;
  std::uint64_t steps_ = 0;  // at the last trigger
  std::uint64_t samples_ = 0;
  std::string unfit_because_;  // of our last unfit contribution
  bool moved_ = false;         // the parameters were moved onto an anchor other than the previous one
  TimePoint triggered_{};
  TimePoint began_ = kNever;  // when the exchange began
  std::atomic<bool> exchanging_{false};
  std::atomic<std::uint32_t> period_{0};
};

// The fields of the event `round`, without those that settings add.
[[nodiscard]] JsonFields fields_of(const RoundReport& report);
// For the log.
[[nodiscard]] std::string text_of(const RoundReport& report);

}  // namespace collab
