// What a simulated run must have kept, checked from outside the machines: the ledger of samples, the mean recomputed in
// double, one anchor for all. The machines' own rules are core/protocol/invariants.h.
//
// Threads: one. Ownership: its own records.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/protocol/invariants.h"

namespace collab::sim {

// What one member brings to one attempt, as it stood when the exchange began.
struct Contribution {
  std::string process;
  double weight = 0;
  std::uint64_t from = 0;  // samples [from, to) of this process
  std::uint64_t to = 0;
  std::vector<float> delta;
};

class Checkers {
 public:
  protocol::Invariants invariants;

  void contributes(const wire::Form& form, SiteId site, Contribution contribution);
  // From a coordinator's Commit: what counts now.
  void committed(const wire::Commit& commit);
  // From the first Adopt of a run at a round: later rounds of that run are undone (all who held them are gone).
  void starts_from(const wire::Adopt& adopt);
  // What a process contributes in a branch counts again in the run the branch came from: samples from `from` on.
  void leaves_branch(const std::string& process, std::uint64_t from);
  // A site took the outer step with this mean.
  void applied(const std::string& process, const wire::Form& form, const wire::Commit& commit,
               const std::vector<float>& mean);
  void fail(const std::string& what) { failures_.push_back(what); }

  // Samples [0, counted) are each counted once, when nothing went wrong for this process.
  void expect_all_counted(const std::string& process, std::uint64_t trained);
  [[nodiscard]] std::vector<std::string> failures() const;
  [[nodiscard]] std::size_t commits() const { return commits_; }

 private:
  struct Interval {
    std::uint64_t to = 0;
    RunId run;
    RoundId round;
  };
  using Attempt = std::tuple<RunId, RoundId, AttemptId>;
  [[nodiscard]] const Contribution* contribution(const Attempt& attempt, SiteId site) const;

  std::map<Attempt, std::map<SiteId, Contribution>> attempts_;
  std::map<Attempt, wire::Form> forms_;
  std::map<std::string, std::map<std::uint64_t, Interval>> counted_;            // by process and first sample
  std::map<std::string, std::map<std::uint64_t, std::uint64_t>> ever_counted_;  // also where it was undone since
  std::set<std::tuple<RunId, RoundId>> committed_;
  std::map<RunId, RoundId> began_at_;
  std::map<RunId, RunId> branch_of_;  // by run: the branch it is, under the run it began with
  std::set<Attempt> idle_;            // rounds in which nobody had a weight
  std::size_t commits_ = 0;
  std::vector<std::string> failures_;
};

}  // namespace collab::sim
