#include "core/protocol/coordinator/agreed_membership.h"

#include <algorithm>
#include <ranges>
#include <tuple>

#include "core/protocol/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

std::vector<wire::Voter> list_of(const Voters& voters) {
  const auto values = std::views::values(voters);
  return {values.begin(), values.end()};
}

// ---- what is agreed on -----------------------------------------------------------------------------

void AgreedMembership::inherit(const Mandate& mandate) {
  if (mandate.new_run.empty()) {  // else the run that begins has a membership of its own
    for (const wire::Voter& voter : mandate.voters) voters_[voter.site] = voter;
  }
  for (const wire::Past& past : mandate.recent) {
    if (past.run == mandate.anchor.run) history_.add(past);
  }
  if (mandate.given_up && mandate.new_run.empty()) history_.give_up_after(mandate.anchor);
}

void AgreedMembership::settle(const Mandate& mandate) {
  history_.add(past_of(mandate.settled->start, mandate.settled->slices));
  voters_.clear();
  for (const wire::Voter& voter : mandate.next_voters) voters_[voter.site] = voter;
}

// What was committed after this anchor is no part of what begins here: who contributed to it cannot be told yes.
void AgreedMembership::begin_run(const wire::Offer& anchor) {
  if (!mutant(Mutant::kHistoryOfOtherRun)) history_.forget_after(anchor.round);
  voters_.clear();
  for (const auto& [id, member] : all_->members()) voters_[id] = {id, member.name, member.anchor.acceptor()};
}

const Voters& AgreedMembership::propose(const std::set<SiteId>& participants) {
  next_voters_.clear();
  for (const auto& [id, member] : all_->members()) {
    // Who says that it holds the anchor and takes no part has no say: it might be anybody, and gone tomorrow.
    const bool has_say = !member.anchor.comes() && (voters_.count(id) != 0 || participants.count(id) != 0);
    if (!has_say && !mutant(Mutant::kVotersWithoutAnchor)) continue;
    next_voters_[id] = wire::Voter{id, member.name, member.anchor.acceptor()};
  }
  return next_voters_;
}

void AgreedMembership::commit(const wire::StartAttempt& start, const std::vector<Digest>& mean) {
  history_.add(past_of(start, mean));
  if (!mutant(Mutant::kVotersKeptByLeader)) voters_ = next_voters_;
}

void AgreedMembership::strike(const Member& member) {
  if (mutant(Mutant::kLeaverIsVoter)) return;
  const AcceptorId acceptor = member.anchor.acceptor();
  const auto next = next_voters_.find(member.id);
  const bool started = next != next_voters_.end() && next->second.acceptor == acceptor;
  if (started) next->second.left = true;
  const auto voter = voters_.find(member.id);
  const bool counts = voter != voters_.end() && presence_of(voter->second, member) != Presence::kAbsent;
  if (counts) voter->second.left = true;
  if (!counts && !started) return;
  Broadcast rest{{},
                 wire::MemberLeft{all_->leadership.term(), member.name, counts ? voter->second.acceptor : acceptor}};
  for (const auto& [id, other] : all_->members()) {
    if (id != member.id) rest.links.push_back(other.link);
  }
  if (!rest.links.empty()) all_->out.emplace_back(std::move(rest));
}

void AgreedMembership::forget() {
  voters_.clear();
  next_voters_.clear();
  history_ = {};
}

// ---- who is enough ---------------------------------------------------------------------------------

Presence AgreedMembership::presence_of(const wire::Voter& voter, const Member& member) const {
  if (member.anchor.acceptor() == voter.acceptor) return Presence::kWithRecord;
  return member.early || mutant(Mutant::kLateMemberCounts) ? Presence::kByName : Presence::kAbsent;
}

Quorum AgreedMembership::quorum_among(const std::set<SiteId>& present) const {
  return quorum_of(std::views::values(voters_), [&](const wire::Voter& voter) {
    return present.count(voter.site) == 0 ? Presence::kAbsent : presence_of(voter, all_->members().at(voter.site));
  });
}

Quorum AgreedMembership::quorum_here() const {
  return quorum_of(std::views::values(voters_), [this](const wire::Voter& voter) {
    const auto member = all_->members().find(voter.site);
    return member == all_->members().end() ? Presence::kAbsent : presence_of(voter, member->second);
  });
}

Quorum AgreedMembership::quorum_at_the_next_term() const {
  return quorum_of(std::views::values(voters_), [this](const wire::Voter& voter) {
    return all_->members().count(voter.site) != 0 ? Presence::kByName : Presence::kAbsent;
  });
}

std::vector<std::string> AgreedMembership::missed_by(const std::set<SiteId>& present) const {
  std::vector<std::string> names;
  for (const auto& [site, voter] : voters_) {
    if (!voter.left && present.count(site) == 0) names.push_back(voter.name);
  }
  return names;
}

std::string AgreedMembership::quorum_text(const std::set<SiteId>& present) const {
  const std::vector<std::string> missing = missed_by(present);
  const auto& anchor = all_->anchor.record();
  return std::to_string(voters_.size() - missing.size()) + " of the " + std::to_string(voters_.size()) +
         " sites that agreed on round " + std::to_string(anchor ? anchor->round.value : 0) +
         ", which is no majority; missing: " + join_words(missing);
}

bool AgreedMembership::is_acceptor_of(AcceptorId acceptor, const std::string& site) const {
  const auto names_it = [&](const Voters& membership) {
    return std::ranges::any_of(std::views::values(membership), [&](const wire::Voter& voter) {
      return voter.acceptor == acceptor && voter.name == site;
    });
  };
  return names_it(voters_) || names_it(next_voters_);
}

CommittedRounds::Answer AgreedMembership::counted(const Member& member) const {
  if (mutant(Mutant::kCountedUnknown)) return {wire::Counted::kUnknown};
  if (mutant(Mutant::kCountedYes)) return {wire::Counted::kYes, AttemptId{UINT32_MAX}};
  if (mutant(Mutant::kCountedNo)) return {wire::Counted::kNo};
  const wire::Offer held = member.anchor.renamed_from().value_or(member.brought());
  const AnchorRecord& anchor = *all_->anchor.record();
  if (held.run.value == 0 || std::tie(held.run, held.round) == std::tie(anchor.run, anchor.round))
    return {wire::Counted::kNo};
  return history_.counted(member.name, held);
}

}  // namespace collab::protocol
