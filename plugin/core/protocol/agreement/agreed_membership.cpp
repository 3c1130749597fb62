#include "core/protocol/agreement/agreed_membership.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/protocol/agreement/attempt.h"
#include "core/protocol/agreement/election.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

std::vector<wire::Voter> list_of(const Voters& voters) {
  const auto values = std::views::values(voters);
  return {values.begin(), values.end()};
}

// ---- what is agreed on -----------------------------------------------------------------------------

void AgreedMembership::inherit(const ElectionResult& elected) {
  if (elected.new_run.empty()) {  // otherwise the new run has a membership of its own
    for (const wire::Voter& voter : elected.voters) voters_[voter.site] = voter;
  }
  for (const wire::Past& past : elected.recent) {
    if (past.run == elected.anchor.run) history_.add(past);
  }
  if (elected.given_up && elected.new_run.empty()) history_.give_up_after(elected.anchor);
}

void AgreedMembership::settle(const ElectionResult& elected) {
  history_.add(past_of(elected.settled->start, elected.settled->slices));
  voters_.clear();
  for (const wire::Voter& voter : elected.next_voters) voters_[voter.site] = voter;
}

// A contribution to a round outside the new run must not be reported as counted.
void AgreedMembership::begin_run(const wire::Offer& anchor, RunId name, Voters founders) {
  if (!mutant(Mutant::kHistoryOfOtherRun)) history_.begin_run(anchor, name);
  voters_ = std::move(founders);
}

// A site that claims to hold the anchor but does not take part is no voter. It could be any process, and be gone
// tomorrow.
const Voters& AgreedMembership::propose(Voters holders, const std::set<SiteId>& participants) {
  next_voters_ = std::move(holders);
  std::erase_if(next_voters_, [&](const auto& entry) {
    const bool is_voter = voters_.count(entry.first) != 0 || participants.count(entry.first) != 0;
    return !is_voter && !mutant(Mutant::kVotersWithoutAnchor);
  });
  return next_voters_;
}

void AgreedMembership::commit(const wire::StartAttempt& start, const std::vector<Digest>& mean) {
  history_.add(past_of(start, mean));
  if (!mutant(Mutant::kVotersKeptByLeader)) voters_ = next_voters_;
}

std::optional<AcceptorId> AgreedMembership::remove_voter(const wire::Voter& leaver, bool early) {
  if (mutant(Mutant::kLeaverIsVoter)) return std::nullopt;
  const auto next = next_voters_.find(leaver.site);
  const bool started = next != next_voters_.end() && next->second.acceptor == leaver.acceptor;
  if (started) next->second.left = true;
  const auto voter = voters_.find(leaver.site);
  const bool counts = voter != voters_.end() && presence_of(voter->second, leaver.acceptor, early) != Presence::kAbsent;
  if (counts) voter->second.left = true;
  if (!counts && !started) return std::nullopt;
  return counts ? voter->second.acceptor : leaver.acceptor;
}

void AgreedMembership::forget() {
  voters_.clear();
  next_voters_.clear();
  history_ = {};
}

// ---- quorums ---------------------------------------------------------------------------------------

Presence AgreedMembership::presence_of(const wire::Voter& voter, AcceptorId acceptor, bool early) {
  if (acceptor == voter.acceptor) return Presence::kWithRecord;
  return early || mutant(Mutant::kLateMemberCounts) ? Presence::kByName : Presence::kAbsent;
}

std::vector<std::string> AgreedMembership::missed_by(const std::set<SiteId>& present) const {
  std::vector<std::string> names;
  for (const auto& [site, voter] : voters_) {
    if (!voter.left && present.count(site) == 0) names.push_back(voter.name);
  }
  return names;
}

bool AgreedMembership::is_acceptor_of(AcceptorId acceptor, const std::string& site) const {
  const auto names_it = [&](const Voters& membership) {
    return std::ranges::any_of(std::views::values(membership), [&](const wire::Voter& voter) {
      return voter.acceptor == acceptor && voter.name == site;
    });
  };
  return names_it(voters_) || names_it(next_voters_);
}

CommittedRounds::Answer AgreedMembership::counted(const std::string& site, const wire::Offer& held, RunId run,
                                                  RoundId round) const {
  if (mutant(Mutant::kCountedUnknown)) return {wire::Counted::kUnknown};
  if (mutant(Mutant::kCountedYes)) return {wire::Counted::kYes, AttemptId{UINT32_MAX}};
  if (mutant(Mutant::kCountedNo)) return {wire::Counted::kNo};
  if (held.run.value == 0 || std::tie(held.run, held.round) == std::tie(run, round)) return {wire::Counted::kNo};
  return history_.counted(site, held);
}

}  // namespace collab::protocol
