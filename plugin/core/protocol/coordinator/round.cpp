#include "core/protocol/coordinator/round.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"
#include "core/wire/limits.h"
#include "core/wire/rules.h"

namespace collab::protocol {
namespace {

// Values that were not measured this time keep their earlier value.
wire::Measured latest(const wire::Measured& before, wire::Measured now) {
  if (now.up_kbit == 0) now.up_kbit = before.up_kbit;
  if (now.down_kbit == 0) now.down_kbit = before.down_kbit;
  if (now.step_us == 0) now.step_us = before.step_us;
  if (now.round_us == 0) now.round_us = before.round_us;
  if (!std::isfinite(std::bit_cast<float>(now.loss))) now.loss = before.loss;
  return now;
}

}  // namespace

RoundId Round::number() const {
  const auto& anchor = all_->anchor.record();
  return RoundId{anchor ? anchor->round.value + 1 : 1};
}

bool Round::is_eligible(const Member& member) const {
  return member.phase() == MemberPhase::kActive && !all_->exclusions.is_excluded(member.id);
}

TimePoint Round::next_deadline() const {
  const TimePoint gate = round_.attempt ? kNever : all_->gate.next_deadline();
  return std::min({round_.limit, round_.waiting.next(), gate});
}

void Round::begin_term(TermId term) {
  attempt_base_ = static_cast<std::uint32_t>((mutant(Mutant::kAttemptsNumberedAlike) ? 0 : term.value - 1) & 0x7FFF)
                  << 16;
  highest_attempt_ = attempt_base_;
}

void Round::begin_anchor() {
  attempt_base_ = highest_attempt_;
  round_.attempts = 0;
}

void Round::keep_slices(std::vector<wire::Slice> slices) { round_.slices = std::move(slices); }

void Round::forget() {
  clear();
  watch_ = {};
  reachability_ = {};
  last_skipped_ = {};
}

void Round::clear() {
  if (!mutant(Mutant::kDoneOfSkippedAttempt)) abandon_attempt();
  round_ = {};
  all_->exclusions.begin_round();
  all_->gate.begin_round();
  reachability_.begin_round();
}

void Round::advance() {
  if (round_.attempt) finish_attempt();
  if (!round_.attempt) try_to_start();
}

// ---- what a site says ------------------------------------------------------------------------------

void Round::on_ready(Member& member, wire::Ready ready) {
  const std::string who = member.name + " is ready for round " + std::to_string(ready.round.value);
  if (ready.weight > 0 && all_->admission.reference()->weighs_equally()) ready.weight = 1;  // whatever it reports
  if (!member.anchor.comes() && all_->anchor.record() && ready.round.value > 0 &&
      (ready.round < number() || member.phase() == MemberPhase::kStale)) {
    // The swarm went on without this member. Now its parameters stand still, so it can take the anchor.
    return all_->installer.wait(member, {member.brought().run, RoundId{ready.round.value - 1}, ready.state});
  }
  if (member.phase() != MemberPhase::kActive || ready.round != number()) {
    // This Ready crossed an InstallAnchor, or is out of step. The site sends it again once it holds the anchor.
    all_->note(Note::Level::kDebug, "ignored", who + ", which is not the next round for it");
    return;
  }
  if (round_.attempt && takes_part(*round_.attempt, member.id)) {
    wire::Ready said = ready;
    if (member.round.ready_) said.since = member.round.ready_->since;
    if (!member.round.ready_ || *member.round.ready_ == said || mutant(Mutant::kReadyNotCompared))
      return;  // reported twice
    // The attempt was formed from a Ready that crossed a RoundSkipped: the site has trained on since.
    all_->note(Note::Level::kInfo, "ready",
               who + " with a different number of samples than the attempt counts on; another attempt is formed");
    all_->exclusions.count_failure_of(member.id);
    abandon_attempt();
  }
  member.round.ready_ = ready;
  all_->period.ready(member.id);
  member.round.since_ = ready.since.value <= highest_attempt_ ? ready.since : AttemptId{};
  member.round.measured_ = latest(member.round.measured_, ready.measured);
  const AnchorRecord& anchor = *all_->anchor.record();
  all_->installer.set_held_anchor(member, {anchor.run, anchor.round, ready.state});
  if (!round_.waiting.running() && !member.helper) {
    round_.waiting.start(all_->now);
    round_.limit = later(all_->now, all_->config.round_timeout);
  }
}

void Round::on_decline(Member& member, const wire::Decline& decline) {
  if (!in_attempt(decline.attempt, decline.round) || !takes_part(*round_.attempt, member.id)) return;
  if (!round_.declined.insert(member.id).second) {
    return all_->membership.expel(member.id,
                                  "it declined round " + std::to_string(decline.round.value) +
                                      " again, although it no longer contributes to it [round.declined-twice]");
  }
  const std::string text = "round " + std::to_string(decline.round.value) + " goes on without the contribution of " +
                           member.name + ": " + decline.reason + " [round.declined]";
  all_->note(Note::Level::kWarning, "declined", text);
  for (const auto& [id, other] : all_->members()) {
    if (id != member.id) all_->send(other, wire::Notice{"declined", text});
  }
  all_->exclusions.count_failure_of(member.id);
  abandon_attempt();
}

void Round::on_peer_unreachable(Member& member, const wire::PeerUnreachable& unreachable) {
  if (!in_attempt(unreachable.attempt, unreachable.round) || !takes_part(*round_.attempt, member.id)) return;
  const wire::Participant* const peer = participant_of(*round_.attempt, unreachable.peer);
  if (peer == nullptr) {  // the member has given up the attempt all the same
    all_->note(Note::Level::kWarning, "peer-unreachable",
               member.name + " cannot go on because of " + all_->membership.name_of(unreachable.peer) +
                   ", which has no part in the attempt: " + unreachable.reason +
                   "; another attempt is formed [round.peer-gone]");
    all_->exclusions.count_failure_of(member.id);
    return abandon_attempt();
  }
  if (!peer->here) {
    const auto gone = round_.gone.find(unreachable.peer);
    all_->note(Note::Level::kInfo, "leave",
               member.name + " has received only part of what " +
                   (gone == round_.gone.end() ? all_->membership.name_of(unreachable.peer) : gone->second.name) +
                   " contributed before it was lost; another attempt is formed without it");
    round_.gone.erase(unreachable.peer);
    return abandon_attempt();
  }
  const bool itself = unreachable.peer == member.id;  // a site that cannot reach itself owns nothing
  const std::string text = member.name +
                           (itself ? " cannot do its part of the exchange: "
                                   : " cannot exchange with " + all_->membership.name_of(unreachable.peer) + ": ") +
                           unreachable.reason;
  const bool apart = reachability_.are_apart(member.id, unreachable.peer, unreachable.round);
  if (apart || !all_->agreed.is_voter(member.id)) {
    all_->exclusions.count_failure_of(member.id);  // such a pair has nothing to exchange
  } else if (!all_->agreed.is_voter(unreachable.peer)) {
    all_->exclusions.count_failure_of(unreachable.peer);
  }
  const bool cut = reachability_.failed(member.id, unreachable.peer, unreachable.round, all_->now - round_.started);
  if (cut) round_.cut_because = text + (itself ? "; without it " : "; without one of the two ");
  all_->note(Note::Level::kWarning, "peer-unreachable",
             text + "; another attempt is formed" +
                 (!cut     ? ""
                  : itself ? ", in which it owns no slice"
                           : ", in which neither owns a slice") +
                 " [round.unreachable]",
             {{"who", itself ? json_list({member.name})
                             : json_list({member.name, all_->membership.name_of(unreachable.peer)})},
              {"round", std::to_string(unreachable.round.value)}});
  abandon_attempt();
}

void Round::on_exchanged(const Member& member, const wire::Exchanged& exchanged) {
  watch_.heard(member.id, exchanged, all_->now);
}

// ---- towards an attempt ----------------------------------------------------------------------------

std::set<SiteId> Round::eligible_sites() const {
  std::set<SiteId> sites;
  for (const auto& [id, member] : all_->members()) {
    if (is_eligible(member)) sites.insert(id);
  }
  return sites;
}

std::set<SiteId> Round::ready_sites() const {
  std::set<SiteId> sites = eligible_sites();
  std::erase_if(sites, [this](SiteId id) { return !all_->members().at(id).round.ready_; });
  return sites;
}

Reachability::Sites Round::addresses_of(const std::set<SiteId>& sites) const {
  using Address = Reachability::Address;
  Reachability::Sites found;
  for (const SiteId id : sites) {
    const Member& member = all_->members().at(id);
    found[id] = member.dialable() ? Address::kVerified : member.address.empty() ? Address::kNone : Address::kUnverified;
  }
  return found;
}

std::vector<Line> Round::lines_of(const std::set<SiteId>& sites) const {
  const std::set<SiteId> able = reachability_.owners(addresses_of(sites), number());
  std::vector<Line> lines;
  for (const SiteId id : sites) {
    const Member& member = all_->members().at(id);
    const bool contributes = member.round.ready_->weight > 0 && round_.declined.count(id) == 0;
    lines.push_back({id, static_cast<double>(member.round.measured_.up_kbit),
                     static_cast<double>(member.round.measured_.down_kbit), contributes, able.count(id) != 0});
  }
  return lines;
}

void Round::try_to_start() {
  const RoundGate::Verdict verdict = all_->gate.judge();
  if (verdict.what == RoundGate::Verdict::What::kNotYet) return;
  if (verdict.what == RoundGate::Verdict::What::kSkip) return skip(verdict.why);
  const std::set<SiteId> ready = ready_sites();
  if (!all_->digests.repair_anchors(ready)) return;
  for (const SiteId id : eligible_sites()) {
    if (ready.count(id) != 0) continue;
    const std::string why = verdict.why.empty() ? ", which was not ready " + in_seconds(all_->config.straggler_grace) +
                                                      " after most sites were (COLLAB_STRAGGLER_GRACE)"
                                                : ": " + verdict.why;
    if (verdict.why.empty()) all_->gate.missed(id);
    all_->exclusions.report_exclusion(all_->membership.name_of(id), why);
  }
  const std::set<SiteId> able = exclude_unreachable(ready);
  if (!able.empty() && (all_->membership.quorum_among(able).can_accept() || mutant(Mutant::kHalfAccepts))) {
    return start(able);
  }
  reachability_.forget_pairs();  // by the next trigger they may reach each other
  skip(round_.cut_because + all_->membership.quorum_text(able));
}

// If no site can reach all others, this round goes on without the site that is cut off from most.
std::set<SiteId> Round::exclude_unreachable(std::set<SiteId> sites) {
  for (const SiteId id : reachability_.to_leave_out(addresses_of(sites), number())) {
    sites.erase(id);
    const bool itself = reachability_.fails_itself(id, number());
    all_->exclusions.exclude(id, itself ? ", which cannot do its part" : ", which cannot exchange with the others");
  }
  return sites;
}

void Round::start(const std::set<SiteId>& sites) {
  wire::StartAttempt start;
  start.term = all_->leadership.term();
  start.generation = all_->generation.generations().current();
  start.fingerprint = all_->admission.reference()->fingerprint();
  start.run = all_->anchor.record()->run;
  start.round = number();
  start.attempt = AttemptId{attempt_base_ + ++round_.attempts};
  if (round_.started == TimePoint{})
    round_.limit = later(all_->now, all_->config.round_timeout);  // the wait had its own limit
  highest_attempt_ = std::max(highest_attempt_, start.attempt.value);
  bool contributes = false;
  for (const SiteId id : sites) {
    Member& member = all_->members().at(id);
    if (member.round.since_.value == 0) member.round.since_ = start.attempt;
    const double weight = round_.declined.count(id) != 0 ? 0 : member.round.ready_->weight;
    contributes = contributes || weight > 0;
    start.participants.push_back({id, member.name, weight, member.round.since_});
    round_.gone.erase(id);
  }
  for (const auto& [id, gone] : round_.gone) {
    if (start.participants.size() == wire::kMaxSites) break;
    contributes = true;
    start.participants.push_back({id, gone.name, gone.weight, gone.since, false});
  }
  std::sort(start.participants.begin(), start.participants.end(),
            [](const auto& a, const auto& b) { return a.site < b.site; });
  round_.started = all_->now;
  all_->gate.started(sites);
  if (contributes) start.slices = all_->slices.divide(start, lines_of(sites), round_.slices);
  Voters holders;
  for (const auto& [id, member] : all_->members()) {
    if (!member.anchor.comes() || mutant(Mutant::kVotersWithoutAnchor)) holders.emplace(id, voter_of(member));
  }
  start.voters = list_of(all_->agreed.propose(std::move(holders), sites));
  all_->membership.flush_roster();
  Broadcast all{{}, start};
  for (const SiteId id : sites) all.links.push_back(all_->members().at(id).link);
  all_->out.emplace_back(std::move(all));
  round_.done = 0;
  round_.here = sites.size();
  round_.slices = start.slices;
  round_.attempt = std::move(start);
  watch_.begin(sites, all_->now);
  all_->period.started(sites);
}

}  // namespace collab::protocol
