#include "core/protocol/coordinator/round_gate.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

void RoundGate::begin_round() {
  majority_since_ = joiners_since_ = joiners_until_ = helpers_until_ = deadlock_since_ = deadlock_until_ = kNever;
  joiners_progressed_ = {};
}

void RoundGate::started(const std::set<SiteId>& with) {
  majority_since_ = kNever;
  for (const SiteId site : with) stragglers_.takes_part(site);
}

void RoundGate::missed(SiteId site) {
  stragglers_.missed(site, all_->now, all_->config.straggler_grace, all_->membership.ids());
}

void RoundGate::joiner_arrived() {
  if (failed_waits_ > 0) --failed_waits_;
  // At the start of a swarm all sites are guests, so this wait may still succeed.
  const auto& anchor = all_->anchor.record();
  if (anchor && anchor->round == RoundId(0)) guests_since_ = kNever;
}

void RoundGate::forget() {
  begin_round();
  stragglers_.forget();
  failed_waits_ = 0;
  guests_missing_ = false;
  guests_since_ = kNever;
  guests_rest_ = {};
}

void RoundGate::slept(Duration time) { guests_since_ = later(guests_since_, time); }

TimePoint RoundGate::next_deadline() const {
  TimePoint next = kNever;
  for (const TimePoint until :
       {later(majority_since_, all_->config.straggler_grace), deadlock_until_, joiners_until_, helpers_until_}) {
    if (until > all_->now) next = std::min(next, until);
  }
  return next;
}

RoundGate::Verdict RoundGate::judge() {
  guests_missing_ = false;
  Verdict verdict = look();
  if (guests_missing_) {
    if (guests_since_ == kNever) ready_then_ = all_->round.ready_sites().size();
    guests_since_ = std::min(guests_since_, all_->now);
  } else if (const TimePoint since = std::exchange(guests_since_, kNever); since != kNever) {
    const Duration waited = all_->now - since;  // the moment in which a site gets ready is no wait
    if (waited >= kReplaceAfter * all_->config.heartbeat && wait_failed()) guests_rest_ = later(all_->now, waited);
  }
  return verdict;
}

// No more sites got ready, or a site has still not come.
bool RoundGate::wait_failed() const {
  if (all_->round.ready_sites().size() <= ready_then_) return true;
  return std::ranges::any_of(all_->members(), [this](const auto& entry) {
    const Member& member = entry.second;
    const bool comes = !member.helper && member.anchor.comes();
    return comes || (all_->round.is_eligible(member) && !member.round.ready());
  });
}

RoundGate::Verdict RoundGate::wait_for_guests() {
  guests_missing_ = true;
  return {};
}

RoundGate::Verdict RoundGate::look() {
  const Count count = count_eligible();
  if (!all_->anchor.record() || count.ready == 0) return {};
  const Waits waits = update_waits(count);
  return count.quorum.can_accept() ? with_quorum(count, waits) : without_quorum(waits);
}

RoundGate::Waits RoundGate::update_waits(const Count& count) {
  const TimePoint now = all_->now;
  const Duration heartbeat = all_->config.heartbeat;
  Waits waits{.rests = now < guests_rest_, .all = count.ready == count.all};
  helpers_until_ =
      waits.all && !count.helped ? std::min(helpers_until_, later(now, kHelperHeartbeats * heartbeat)) : kNever;
  waits.whole = waits.all && (count.helped || waits.rests || now >= helpers_until_);
  const Deadlock deadlock = waits.whole || calls_.empty() ? Deadlock() : find_deadlock();
  deadlock_since_ = deadlock.text.empty() ? kNever : std::min(deadlock_since_, now);
  deadlock_until_ = deadlock.stands ? deadlock_since_ : later(deadlock_since_, kDeadlockHeartbeats * heartbeat);
  waits.deadlocked = now >= deadlock_until_;
  waits.deadlock = deadlock.text;
  return waits;
}

// No round is possible: the ready sites train on, once no missing site could change that.
RoundGate::Verdict RoundGate::without_quorum(const Waits& waits) {
  if (!waits.whole && !waits.deadlocked) return waits.all ? wait_for_guests() : Verdict{};
  if (waits_for_joiners()) return wait_for_guests();
  return {Verdict::What::kSkip,
          waits.deadlocked ? waits.deadlock : all_->membership.quorum_text(all_->round.ready_sites())};
}

// Starts if all are ready, or if most are and the others cannot come or have had their grace.
RoundGate::Verdict RoundGate::with_quorum(const Count& count, const Waits& waits) {
  using enum Verdict::What;
  if (2 * count.ready <= count.settled) {
    majority_since_ = kNever;
    return waits.deadlocked ? Verdict{kSkip, waits.deadlock} : Verdict{};
  }
  majority_since_ = std::min(majority_since_, all_->now);
  const bool grace_over = all_->now >= later(majority_since_, all_->config.straggler_grace);
  if (!waits.whole && !waits.deadlocked && !grace_over) {
    const bool guests_alone = count.ready == count.settled;
    if (!guests_alone) return {};
    if (!waits.rests) return wait_for_guests();
  }
  if (waits_for_joiners()) return wait_for_guests();
  if (waits.deadlocked) return {kStart, waits.deadlock};
  if (grace_over) return {kStart};
  return {kStart, waits.all ? "it is a helper, or earlier rounds waited for it in vain"
                            : "it is new, and new sites have just delayed a round"};
}

// Only counts, and builds no sets, as this runs at each event.
RoundGate::Count RoundGate::count_eligible() const {
  const Voters& voters = all_->agreed.voters();
  Count count;
  count.quorum.voters = voters.size() - (mutant(Mutant::kHalfAccepts) ? 1 : 0);
  for (const auto& [id, voter] : voters) count.quorum.by_name += voter.left ? 1 : 0;
  auto voter = voters.begin();  // both are ascending
  for (const auto& [id, member] : all_->members()) {
    if (!all_->round.is_eligible(member)) continue;
    while (voter != voters.end() && voter->first < id) ++voter;
    const bool is_voter = voter != voters.end() && voter->first == id;
    const bool ready = member.round.ready().has_value();
    if (member.helper || (!ready && stragglers_.rests(id, all_->now))) {
      count.helped = count.helped && ready;
    } else {
      ++count.all;
      count.settled += ready || is_voter || voters.empty() ? 1 : 0;
    }
    if (!ready) continue;
    count.ready += member.helper ? 0 : 1;
    if (!is_voter || voter->second.left) continue;
    count.quorum.by_name += presence_of(voter->second, member) == Presence::kAbsent ? 0 : 1;
  }
  return count;
}

// Ready sites wait for sites that stand in calls of their world, and these calls wait for the ready sites.
RoundGate::Deadlock RoundGate::find_deadlock() const {
  Deadlock found;
  std::vector<std::string> parts;
  for (const auto& [id, member] : all_->members()) {
    if (!all_->round.is_eligible(member) || member.round.ready()) continue;
    const auto call = calls_.find(member.name);
    if (call == calls_.end()) return {};
    const auto awaited = std::ranges::find_if(all_->members(), [&](const auto& other) {
      return other.second.round.ready() && call->second.awaits.count(other.second.name) != 0;
    });
    if (awaited == all_->members().end()) return {};
    found.stands = found.stands && call->second.stands_still;
    parts.push_back(member.name + " is in " + call->second.call + ", which waits for " + awaited->second.name);
  }
  found.text = join_words(parts);
  return found;
}

// Only joiners are missing. The anchor does not move under them while they make progress. Each wait for
// joiners that failed halves the next one. So a site that joins and takes nothing, under ever new names, holds up the
// others for two graces in all, and then for three heartbeats at a time.
bool RoundGate::waits_for_joiners() {
  std::vector<std::string> joiners;
  for (const auto& [id, member] : all_->members()) {
    if (member.helper || !member.anchor.comes() || all_->exclusions.is_excluded(id)) continue;
    joiners.push_back(member.name);
    if (member.phase() != MemberPhase::kInstalling || !member.anchor.has_progressed()) continue;  // nothing taken yet
    joiners_progressed_ = std::max(joiners_progressed_, member.anchor.progressed_at());
  }
  if (joiners.empty()) {
    joiners_since_ = joiners_until_ = kNever;
    joiners_progressed_ = {};
    return false;
  }
  if (all_->now < guests_rest_) return false;
  joiners_since_ = std::min(joiners_since_, all_->now);
  const Duration least = kReplaceAfter * all_->config.heartbeat;
  const Duration idle_limit = std::max(least, all_->config.link_grace / (1U << failed_waits_));
  const Duration limit = std::max(least, all_->config.round_timeout / (1U << failed_waits_));
  joiners_until_ =
      std::min(later(std::max(joiners_since_, joiners_progressed_), idle_limit), later(joiners_since_, limit));
  if (all_->now < joiners_until_) return true;
  failed_waits_ = std::min(failed_waits_ + 1, kMaxFailedWaits);
  const std::string round = std::to_string(all_->round.number().value);
  all_->note(Note::Level::kWarning, "straggler",
             "round " + round + " goes on without " + join_words(joiners) + ", which " +
                 (joiners.size() == 1 ? "has" : "have") + " not taken the anchor in time [round.without-joiners]",
             {{"who", json_list(joiners)}, {"round", round}});
  return false;
}

}  // namespace collab::protocol
