// An attempt in flight: which members it loses, which it waits for, and for how long.
#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/coordinator/round.h"
#include "core/protocol/mutants.h"
#include "core/wire/rules.h"

namespace collab::protocol {
namespace {

std::set<SiteId> owners_of(const std::vector<wire::Slice>& slices) {
  std::set<SiteId> owners;
  for (const wire::Slice& slice : slices) owners.insert(slice.owner);
  return owners;
}

}  // namespace

bool Round::in_attempt(AttemptId attempt, RoundId of) const {
  return round_.attempt && round_.attempt->attempt == attempt && round_.attempt->round == of;
}

void Round::abandon_attempt() {
  round_.attempt.reset();
  for (auto& [id, member] : all_->members()) member.round.done_.reset();
}

void Round::discard_exchange() {
  for (auto& [id, member] : all_->members()) member.round.since_ = AttemptId{};
  round_.gone.clear();
  round_.slices.clear();
  abandon_attempt();
}

void Round::lost(const Member& gone) {
  reachability_.forget(gone.id);
  if (!round_.attempt || !takes_part(*round_.attempt, gone.id)) return;
  drop_participant(gone);
  all_->exclusions.lost(gone);
  abandon_attempt();
}

void Round::drop_participant(const Member& lost) {
  const wire::StartAttempt& start = *round_.attempt;
  const bool owns = std::any_of(start.slices.begin(), start.slices.end(),
                                [&](const wire::Slice& slice) { return slice.owner == lost.id; });
  const wire::Participant* const part = participant_of(start, lost.id);
  if ((!owns || mutant(Mutant::kLostOwnerCounts)) && part->weight > 0)
    round_.gone[lost.id] = {lost.name, part->weight, part->since, lost.round.samples()};
}

// A round begins when its first site is ready. If no site is ready any more, no site waits, and the round begins again.
// Helpers do not count: they are ready all the time and wait for nothing.
void Round::end_without_ready() {
  const auto waits = [](const auto& entry) { return entry.second.round.ready_ && !entry.second.helper; };
  if (std::ranges::none_of(all_->members(), waits)) begin_again();
}

// Two members that cannot be dialled cannot link. Without this check, that would show only after the limit for links.
// Once a member is done, all members have reached each other.
void Round::reform_if_owners_undialable() {
  if (!round_.attempt || round_.done > 0) return;
  std::vector<std::string> unverified;
  bool any_dialable = false;
  for (const wire::Participant& p : round_.attempt->participants) {
    if (!p.here) continue;
    const Member& member = all_->members().at(p.site);
    any_dialable = any_dialable || member.dialable();
    if (!member.dialable()) unverified.push_back(member.name);
  }
  const bool owned = std::ranges::any_of(
      round_.attempt->slices, [this](const wire::Slice& slice) { return !all_->members().at(slice.owner).dialable(); });
  if (!any_dialable || unverified.size() < 2 || !owned) return;
  all_->note(Note::Level::kInfo, "address",
             "round " + std::to_string(number().value) + ": none of " + join_words(unverified) +
                 " can be dialled; another attempt is formed, in which they own no slice",
             {{"round", std::to_string(number().value)}});
  abandon_attempt();
}

// If nothing of an exchange moves any more, the sites that hold it up are dropped like silent ones.
void Round::judge_exchange() {
  if (!round_.attempt || mutant(Mutant::kStandstillIgnored)) return;
  const Duration limit = all_->config.standstill();
  const std::vector<SiteId> open = waited_for();
  std::set<SiteId> say;
  for (const wire::Participant& p : round_.attempt->participants) {
    if (all_->agreed.is_voter(p.site)) say.insert(p.site);
  }
  const auto stall = watch_.stall({open.begin(), open.end()}, say, limit, all_->now);
  if (!stall) return;
  if (!stall->newcomers.empty()) {
    return abandon_attempt_of(
        stall->newcomers,
        "makes progress only according to itself and other new sites: no site of an earlier round has "
        "reported progress for " +
            in_seconds(limit) +
            "; the round goes on without it, and what it trained counts in a later round [round.newcomer-moves]");
  }
  const std::string reason = "nothing of its part in the exchange has arrived for " + in_seconds(limit);
  if (stall->pair) {
    const auto& [site, lacked] = *stall->pair;
    return on_peer_unreachable(all_->members().at(site), {number(), round_.attempt->attempt, lacked, reason});
  }
  if (stall->held_up_by.empty()) return skip("the exchange has made no progress for " + in_seconds(limit));
  for (const SiteId id : stall->held_up_by) {
    const std::uint32_t times = watch_.count_stall(all_->membership.name_of(id));
    if (times >= kMaxRepeats) {
      all_->membership.expel(id, reason + ", " + times_text(times) + " [round.stalls-again]");
      continue;
    }
    all_->membership.close_link(id, reason + " [round.stalls]");
  }
}

void Round::on_tick() {
  if (!round_.waiting.running()) return;
  if (all_->now >= round_.limit) return on_limit();
  const auto waited = round_.waiting.due(all_->now);
  const std::string whom = waiting_text();
  if (waited && !whom.empty()) all_->note(Note::Level::kInfo, "waiting", whom + " (" + in_seconds(*waited) + ")");
}

std::set<SiteId> Round::open_newcomers(const std::set<SiteId>& open) const {
  std::set<SiteId> newcomers = open;
  std::erase_if(newcomers, [this](SiteId id) { return all_->agreed.is_voter(id); });
  return newcomers;
}

// Every wait has a limit. At the limit the round goes on without the sites that are late, and names them. These are the
// sites that are not done; if too few are done, the sites whose contributions most owners lack. If all lines are slow,
// the exchange gets more time while it makes progress. Then the round goes on without the sites whose means most others
// lack, or without newcomers. If none of this leaves enough sites, the round is skipped.
void Round::on_limit() {
  const std::string limit = in_seconds(all_->config.round_timeout) + " (COLLAB_ROUND_TIMEOUT)";
  const std::string which = "round " + std::to_string(number().value);
  round_.limit = later(all_->now, all_->config.round_timeout);
  if (!round_.attempt)
    return skip("only " + std::to_string(ready_sites().size()) + " of " + std::to_string(eligible_sites().size()) +
                " sites were ready within " + limit);
  const std::vector<SiteId> waited = waited_for();
  const std::set<SiteId> open(waited.begin(), waited.end());
  const auto can_go_on = [&](const std::set<SiteId>& late) {
    std::set<SiteId> others = ready_sites();
    for (const SiteId id : late) others.erase(id);
    return !late.empty() && all_->membership.quorum_among(others).can_accept();
  };
  std::set<SiteId> late = open;
  if (late.size() == round_.here || !can_go_on(late)) late = watch_.slow(owners_of(round_.attempt->slices));
  ++round_.limits;
  if (!can_go_on(late) || round_.limits > kMaxExtensions + 1) {
    // Links and the first heartbeats take a moment.
    const bool is_progressing = watch_.is_progressing(open) || all_->now - round_.started < all_->config.link_grace;
    if (is_progressing && round_.limits <= kMaxExtensions) {
      return all_->note(Note::Level::kWarning, "waiting",
                        which + ": its exchange was not finished within " + limit +
                            "; it is making progress, so it gets the same time again [round.slow]");
    }
    late = watch_.sites_withholding_means();
    if (!can_go_on(late)) late = open_newcomers(open);
    if (!can_go_on(late) || round_.limits > kMaxExtensions + 1) {
      return skip("its exchange was not finished within " + limit +
                  (round_.limits > 1 ? ", " + times_text(round_.limits) : ""));
    }
  }
  abandon_attempt_of(
      late, "was not finished within " + limit +
                "; the round goes on without it, and what it trained counts in a later round [round.exchange-timeout]");
}

void Round::abandon_attempt_of(const std::set<SiteId>& late, const std::string& why) {
  std::map<SiteId, std::string> newcomers;
  for (const SiteId id : late) {
    const std::string& name = all_->membership.name_of(id);
    if (!all_->agreed.is_voter(id)) newcomers.emplace(id, name);
    all_->exclusions.set_aside(id);
    all_->note(Note::Level::kWarning, "straggler",
               "round " + std::to_string(number().value) + ": the exchange at " + name + " " + why,
               {{"who", json_quote(name)}, {"round", std::to_string(number().value)}});
  }
  all_->exclusions.exclude_newcomers(newcomers);
  abandon_attempt();
}

std::vector<SiteId> Round::waited_for() const {
  std::vector<SiteId> sites;
  if (round_.attempt) {
    for (const wire::Participant& p : round_.attempt->participants) {
      if (p.here && !all_->members().at(p.site).round.done_) sites.push_back(p.site);
    }
    return sites;
  }
  for (const auto& [id, member] : all_->members()) {
    const bool waits = member.phase() != MemberPhase::kStale && !all_->exclusions.is_excluded(id);
    if (waits && (!member.round.ready_ || member.phase() != MemberPhase::kActive)) sites.push_back(id);
  }
  return sites;
}

std::string Round::waiting_text() const {
  if (all_->anchor.gathers()) return all_->anchor.waiting_text();
  if (!round_.waiting.running()) return {};
  std::vector<std::string> names;
  for (const SiteId id : waited_for()) names.push_back(all_->membership.name_of(id));
  if (names.empty()) return {};
  return "round " + std::to_string(number().value) +
         (round_.attempt
              ? " attempt " + std::to_string(round_.attempt->attempt.value) + ": waiting for the exchange at "
              : ": waiting for ") +
         join_words(names);
}

}  // namespace collab::protocol
