// The rounds that a leader knows to be committed. Their contributors tell a site that comes back whether it was
// counted. Their means tell a site that it missed a commit.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/wire/messages.h"

namespace collab::protocol {

class CommittedRounds {
 public:
  // If a round is added twice, the later entry replaces the first. A fixed number of rounds is kept.
  void add(const wire::Past& past);
  // The round after this anchor was never committed under the anchor's run.
  void give_up_after(const wire::Offer& anchor) { given_up_after_ = anchor; }
  // A run of this name begins from that anchor. Rounds committed after the anchor, or by a run that branched off
  // before it, do not belong to the new run.
  void begin_run(const wire::Offer& anchor, RunId name);

  // Whether a site of this name that holds this anchor was counted in the round after it. The site's earlier process
  // may have contributed to the committed attempt, so `attempt` says which one was committed.
  struct Answer {
    wire::Counted counted = wire::Counted::kUnknown;
    AttemptId attempt{};  // kYes: the one that was committed
    bool operator==(const Answer&) const = default;
  };
  [[nodiscard]] Answer counted(const std::string& site, const wire::Offer& held) const;
  // The commit that a site was done with but has not heard of; null: there is none.
  [[nodiscard]] const wire::Proposal* missed_by(const wire::Offer& offer, const wire::Report& report) const;
  [[nodiscard]] bool has_right_mean(const wire::Proposal& missed) const;

 private:
  friend struct Inside;
  struct Round {
    RunId run;
    AttemptId attempt;
    std::set<std::string> contributors;  // names
    Digest mean;                         // of the slices' digests
  };
  std::map<RoundId, Round> rounds_;  // one after the other, though run names may change between them
  RunId run_;                        // of the last round added, or the run begun since
  std::optional<wire::Offer> given_up_after_;
};

}  // namespace collab::protocol
