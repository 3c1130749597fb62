// Whether this candidate leads: from the result of an election (election.h) to a swarm, and back to being a candidate.
//
//   candidate --elected--> leads --a newer term, an older swarm, no majority, no site here--> candidate
//
// A leader forms attempts only with an accept quorum of the membership. It steps down in three cases: it hears of a
// newer term; it has founded a swarm and hears of an older one; or too few sites are here for any round. A voter that
// comes back without its record counts only from the next term on. If that voter is needed, the leader begins a new
// term.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/rate_limit.h"
#include "core/protocol/agreement/election.h"
#include "core/protocol/coordinator/coordinator.h"

namespace collab::protocol {

struct CoordinatorParts;

class Leadership {
 public:
  explicit Leadership(const CoordinatorConfig& config);

  [[nodiscard]] bool leads() const { return leads_; }
  [[nodiscard]] bool founded() const { return founded_; }               // no site that joined knew of a membership
  [[nodiscard]] TermId term() const { return term_; }                   // that it leads under, or led under last
  [[nodiscard]] const Election& election() const { return election_; }  // while it does not lead
  // The site behind this link came before the term began.
  [[nodiscard]] bool is_early(LinkId link) const { return early_.count(link) != 0; }
  [[nodiscard]] std::vector<std::string> missed() const;  // voters that are missing, as the sites here know
  [[nodiscard]] TimePoint next_deadline() const;
  // A new number for a run that begins here; it differs from `known`.
  [[nodiscard]] RunId next_run(RunId known);
  // Whether this coordinator began that run.
  [[nodiscard]] bool began_here(RunId run) const;

  // ---- while it does not lead
  void apply(LinkId link, const wire::Join& join);  // a site waits for the election
  void heard(LinkId link);
  bool from_applicant(LinkId link, const wire::Message& message);  // whether an applicant sent it
  void remove_applicant(LinkId link);
  [[nodiscard]] std::map<LinkId, wire::Join> dismiss() { return election_.dismiss(); }

  // ---- while it leads
  // Judges a site that joins: false if it was sent away. May step down.
  [[nodiscard]] bool hear_of(LinkId link, const wire::Join& join);
  void judge_quorum();  // steps down if no round can be agreed on
  void stop();          // keeps nothing: the sites remember what was agreed on

  void on_forget(LinkId link, const wire::Forget& forget);
  void on_tick();
  void forget();

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  void try_to_lead();
  void lead(ElectionResult elected);
  void inherit(const ElectionResult& elected);
  void refuse_disproved(LinkId link, const wire::Join& join, RoundId agreed);
  void step_down(const std::string& reason);
  [[nodiscard]] bool may_depose(AcceptorId voter);            // counts each call: ask only if it would depose
  [[nodiscard]] bool is_older(const wire::Join& join) const;  // whether its swarm is older than the one here
  [[nodiscard]] std::string no_use_text(const wire::Forget& forget, const std::vector<std::string>& missed) const;

  CoordinatorParts* all_ = nullptr;
  TermId term_;
  Election election_;
  bool leads_ = false;
  bool founded_ = false;
  std::set<LinkId> early_;
  TimePoint minority_since_ = kNever;  // too few sites are here to accept anything
  std::set<RunId> begun_;              // runs begun here
  // Kept over all terms: how often each voter may still depose this leader, and the voters whose later round was
  // disproved (election.h).
  std::map<AcceptorId, RateLimit> depositions_;
  std::set<AcceptorId> disproved_;
};

}  // namespace collab::protocol
