#include <algorithm>
#include <span>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/coordinator/round.h"
#include "core/protocol/mutants.h"

// An attempt in flight, and its end.
namespace collab::protocol {

bool Round::in_attempt(AttemptId attempt, RoundId of) const {
  return round_.attempt && round_.attempt->attempt == attempt && round_.attempt->round == of;
}

void Round::abandon_attempt() {
  round_.attempt.reset();
  for (auto& [id, member] : all_->members()) member.round.done_.reset();
}

// Nothing of the round's exchange counts any more.
void Round::start_afresh() {
  for (auto& [id, member] : all_->members()) member.round.since_ = AttemptId{};
  round_.gone.clear();
  round_.slices.clear();
  abandon_attempt();
}

void Round::lost(const Member& gone) {
  reachability_.forget(gone.id);
  if (!round_.attempt) return;
  const auto& in = round_.attempt->participants;
  if (std::ranges::none_of(in, [&](const auto& p) { return p.site == gone.id && p.here; })) return;
  part_with(gone);
  if (!has_say(gone.id)) {
    leave_newcomers_out(gone);
  } else if (faults_.gave_up(gone.id)) {
    tell_without(gone.name, ", which was lost " + times_text(kMaxFailures + 1));
  }
  abandon_attempt();
}

static std::uint64_t samples_of(const Member& member) {
  return member.round.ready() ? member.round.ready()->samples : 0;
}

void Round::part_with(const Member& lost) {
  const wire::StartAttempt& start = *round_.attempt;
  const bool owns = std::any_of(start.slices.begin(), start.slices.end(),
                                [&](const wire::Slice& slice) { return slice.owner == lost.id; });
  const auto& in = start.participants;
  const auto part = std::find_if(in.begin(), in.end(), [&](const auto& p) { return p.site == lost.id; });
  if ((!owns || mutant(Mutant::kLostOwnerCounts)) && part->weight > 0)
    round_.gone[lost.id] = {lost.name, part->weight, part->since, samples_of(lost)};
}

// A round begins with its first ready: without one nobody waits. A helper is ready all the time, and waits for nobody.
void Round::end_without_ready() {
  const auto waits = [](const auto& entry) { return entry.second.round.ready_ && !entry.second.helper; };
  if (std::ranges::none_of(all_->members(), waits)) begin_again();
}

// Two members that cannot be dialled cannot link. Without this it would show only after the limit for links. Where
// somebody is done, all have reached each other.
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
             "round " + std::to_string(number().value) + ": of " + join_words(unverified) +
                 " none can be dialled; another attempt is formed, in which they own no slice",
             {{"round", std::to_string(number().value)}});
  abandon_attempt();
}

// Nothing of an exchange moves any more: who holds it up is let go, as one that is silent is.
void Round::judge_exchange() {
  if (!round_.attempt) return;
  const Duration limit = std::max(all_->config.link_grace, all_->config.least_standstill);
  const std::vector<SiteId> open = waited_for();
  const auto stall = watch_.stall({open.begin(), open.end()}, limit, all_->now);
  if (!stall) return;
  const std::string reason = "nothing of its part of an exchange has come for " + in_seconds(limit);
  if (stall->pair) {
    const auto& [site, lacked] = *stall->pair;
    return on_peer_unreachable(all_->members().at(site), {number(), round_.attempt->attempt, lacked, reason});
  }
  if (stall->held_up_by.empty()) return skip("nothing of the exchange has moved for " + in_seconds(limit));
  for (const SiteId id : stall->held_up_by) {
    const std::uint32_t times = watch_.count_hold_up(all_->membership.name_of(id));
    if (times >= kMaxRepeats) {
      all_->membership.expel(id, reason + ", " + times_text(times) + " [round.stalls-again]");
      continue;
    }
    all_->membership.hang_up(id, reason + " [round.stalls]");
  }
}

void Round::on_tick() {
  if (!round_.waiting.running()) return;
  if (all_->now >= round_.limit) return on_limit();
  const auto waited = round_.waiting.due(all_->now);
  const std::string whom = waiting_text();
  if (waited && !whom.empty()) all_->note(Note::Level::kInfo, "waiting", whom + " (" + in_seconds(*waited) + ")");
}

// Nothing waits without limit: those for whom the others have waited too long are let go, by name.
void Round::on_limit() {
  const std::string limit = in_seconds(all_->config.round_timeout) + " (COLLAB_ROUND_TIMEOUT)";
  const std::string which = "round " + std::to_string(number().value);
  round_.limit = later(all_->now, all_->config.round_timeout);
  const std::vector<SiteId> late = waited_for();
  if (round_.attempt && late.size() == round_.here && !round_.stalled) {
    // Nobody has finished, so nobody can be blamed: once more from the start.
    round_.stalled = true;
    all_->note(Note::Level::kWarning, "waiting",
               which + ": no site finished its exchange within " + limit + "; it is tried once more [round.timeout]");
    return start_afresh();
  }
  if (!round_.attempt)
    return skip("only " + std::to_string(ready_sites().size()) + " of " + std::to_string(eligible_sites().size()) +
                " sites were ready within " + limit);
  for (const SiteId id : late) {
    faults_.set_aside(id);
    all_->note(Note::Level::kWarning, "straggler",
               which + ": the exchange at " + all_->membership.name_of(id) + " was not done within " + limit +
                   "; the others go on, what it trained counts in a later round [round.exchange-timeout]",
               {{"who", json_quote(all_->membership.name_of(id))}, {"round", std::to_string(number().value)}});
  }
  abandon_attempt();
  if (!all_->membership.quorum_among(ready_sites()).can_accept()) skip(all_->membership.quorum_text(ready_sites()));
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
    const bool waits = member.phase() != MemberPhase::kStale && !is_left_out(id);
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

// ---- its end ---------------------------------------------------------------------------------------

void Round::finish_attempt() {
  const wire::StartAttempt& start = *round_.attempt;
  if (round_.done < (mutant(Mutant::kCommitBeforeAllAreDone) ? 1 : round_.here)) return;
  std::set<SiteId> wrong;
  for (std::size_t i = 0; i < start.slices.size(); ++i) {
    std::map<SiteId, Digest> said;
    for (const wire::Participant& p : start.participants) {
      if (p.here && (all_->members().at(p.site).round.done_ || !mutant(Mutant::kCommitBeforeAllAreDone)))
        said[p.site] = (*all_->members().at(p.site).round.done_)[i];
    }
    const Digest right = right_of(said);
    for (const auto& [site, digest] : said) {
      if (digest != right && !mutant(Mutant::kMeansNotCompared)) wrong.insert(site);
    }
  }
  if (wrong.empty()) return commit();
  const std::string what = " has another mean of round " + std::to_string(start.round.value) + " than " +
                           (round_.here == 2 ? "the lower site, which of two is taken to be right" : "most");
  const RoundId number_started = start.round;
  start_afresh();
  all_->changed = true;
  for (const SiteId id : wrong) {
    const std::uint32_t times = faults_.count_mean_repair(id);
    if (!has_say(id)) leave_newcomers_out(all_->members().at(id));
    const std::string again = all_->membership.name_of(id) + what + " (" + times_text(times) + ")";
    if (times > kMaxRepeats && has_say(id) && !is_needed(id)) {  // others' word, which may be a lie, ends no training
      faults_.set_aside(id);
      tell_without(all_->membership.name_of(id), ": " + again);
    } else if (times > kMaxRepeats) {
      all_->membership.expel(id, again + " [round.mean-beyond-repair]");
    } else {
      all_->note(Note::Level::kError, "repair",
                 all_->membership.name_of(id) + what + "; another attempt is formed [round.mean-differs]",
                 {{"who", json_quote(all_->membership.name_of(id))}, {"round", std::to_string(number_started.value)}});
    }
  }
}

void Round::commit() {
  const RoundId committed = number();
  const wire::StartAttempt start = *round_.attempt;
  const std::vector<SiteId> contributors = contributors_of(start);
  std::vector<std::string> members_named;
  std::vector<Digest> mean;
  for (const wire::Participant& p : start.participants) {
    if (!p.here) continue;
    faults_.had_right_mean(p.site);
    mean = all_->members().at(p.site).round.done_.value_or(std::vector<Digest>{});
    members_named.push_back(all_->membership.name_of(p.site));
  }
  all_->agreed.commit(start, mean);
  compare(start);
  std::vector<std::string> names;
  // Each sample comes once in every fragment.
  const bool tallied = all_->admission.reference()->fragments().in_turn(committed) == 0;
  for (const SiteId id : contributors) {
    const auto gone = round_.gone.find(id);
    const auto member = all_->members().find(id);
    names.push_back(gone == round_.gone.end() ? all_->membership.name_of(id) : gone->second.name);
    const std::uint64_t samples = gone != round_.gone.end()         ? gone->second.samples
                                  : member != all_->members().end() ? samples_of(member->second)
                                                                    : 0;
    all_->tally.add(names.back(), tallied ? samples : 0);
  }
  Broadcast all{{},
                wire::Commit{all_->leadership.term(), all_->anchor.record()->run, committed, start.attempt,
                             contributors, all_->period.committed(start)}};
  auto participant = start.participants.begin();  // both ascend
  for (auto& [id, member] : all_->members()) {
    while (participant != start.participants.end() && participant->site < id) ++participant;
    if (participant != start.participants.end() && participant->site == id && participant->here) {
      all.links.push_back(member.link);
      member.round.ready_.reset();
    } else {
      all_->installer.left_out(member);
    }
  }
  all_->out.emplace_back(std::move(all));
  all_->slices.committed(start, all_->now - round_.started, round_.attempts == 1);
  all_->note(Note::Level::kInfo, "round",
             "round " + std::to_string(committed.value) +
                 (names.empty() ? ": nobody had anything to contribute, the anchor stands" : ": " + join_words(names)),
             {{"round", std::to_string(committed.value)},
              {"attempt", std::to_string(start.attempt.value)},
              {"members", json_list(members_named)},
              {"contributors", json_list(names)},
              {"seconds", json_number(static_cast<double>((all_->now - round_.started).count()) / 1e6)}});
  all_->anchor.committed(committed, !contributors.empty());
  clear();
}

void Round::compare(const wire::StartAttempt& start) {
  std::map<SiteId, std::span<const std::uint32_t>> sampled_deltas;
  for (const wire::Participant& p : start.participants) {
    if (!p.here || p.weight == 0) continue;
    const auto& ready = all_->members().at(p.site).round.ready_;
    if (ready) sampled_deltas[p.site] = ready->sampled_delta;
  }
  for (const DuplicateData::Pair& pair : duplicate_data_.committed(sampled_deltas)) {
    const std::string text =
        all_->membership.name_of(pair.a) + " and " + all_->membership.name_of(pair.b) + " have learned the same in " +
        std::to_string(kAlikeRounds) + " rounds running (cosine " + json_number(pair.cosine) +
        "): if they train on the same data it counts twice. Give each site its own: a DistributedSampler with default "
        "ranks does; where the script draws batches itself (torch.manual_seed, a generator, numpy) add "
        "torch_collab.site_index() to the seed (times the number of ranks where the rank is added too), where it reads "
        "files or a stream (IterableDataset) take every torch_collab.site_count()-th part from site_index() on, with "
        "COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS set [round.same-data]";
    all_->note(Note::Level::kWarning, "same-data", text,
               {{"who", json_list({all_->membership.name_of(pair.a), all_->membership.name_of(pair.b)})},
                {"round", std::to_string(start.round.value)}});
    for (const SiteId id : {pair.a, pair.b}) all_->send(all_->members().at(id), wire::Notice{"same-data", text});
  }
}

void Round::skip(const std::string& reason) {
  const RoundId of = number();
  const bool told = std::exchange(last_skipped_, std::pair(of, reason)) == std::pair(of, reason);
  all_->note(told ? Note::Level::kDebug : Note::Level::kWarning, "no-quorum",
             "no attempt at round " + std::to_string(of.value) + ": " + reason +
                 "; the anchor stands, the sites train on [round.no-quorum]",
             {{"round", std::to_string(of.value)}});
  all_->period.skipped();
  for (auto& [id, member] : all_->members()) {
    if (member.phase() != MemberPhase::kActive || !member.round.ready_) continue;
    all_->send(member, wire::RoundSkipped{all_->leadership.term(), of, reason});
    member.round.ready_.reset();
  }
  begin_again();
}

// Attempts go on being counted, so that what was sent for an earlier one is never taken for a later one.
void Round::begin_again() {
  const std::uint32_t attempts = round_.attempts;
  clear();
  if (!mutant(Mutant::kAttemptsCountedAnew)) round_.attempts = attempts;
}

}  // namespace collab::protocol
