// A site's part in a round: ready, an attempt, done, the commit.
#include <algorithm>

#include "core/protocol/site_state.h"

namespace collab::protocol {

void Site::State::send_ready() {
  if (membership != Membership::kActive || round.phase != RoundPhase::kReady || round.ready_sent) return;
  round.ready_sent = true;
  wire::Ready ready;
  ready.round = RoundId{anchor->round.value + 1};
  ready.state = anchor->digest;
  ready.steps = round.trigger.steps;
  if (!round.stale) {
    ready.weight = round.trigger.weight;
    ready.samples = round.trigger.samples;
  }
  send_up(ready);
}

bool Site::State::in_attempt(RoundId number, AttemptId attempt) const {
  return round.form && round.form->round == number && round.form->attempt == attempt;
}

// Chunks flow between a slice's owner and everybody, so two sites that own nothing need no link.
bool Site::State::exchanges_with(SiteId peer) const {
  if (!round.form || peer == self) return false;
  const auto& in = round.form->participants;
  if (std::none_of(in.begin(), in.end(), [&](const auto& p) { return p.site == peer; })) return false;
  return std::any_of(round.form->slices.begin(), round.form->slices.end(),
                     [&](const wire::Slice& slice) { return slice.owner == peer || slice.owner == *self; });
}

void Site::State::on_form(const wire::Form& form) {
  const std::string what =
      "attempt " + std::to_string(form.attempt.value) + " of round " + std::to_string(form.round.value) + " was formed";
  const auto ignore = [&](const std::string& why) { note(Note::Level::kWarning, "ignored", what + ", but " + why); };
  if (form.term < term) return ignore("under an older term");
  if (membership != Membership::kActive || !round.ready_sent) return ignore("this site is not ready");
  if (round.phase == RoundPhase::kApplying) return ignore("the round's commit is being applied");
  if (form.run != anchor->run || form.round.value != anchor->round.value + 1) {
    return ignore("this site stands at round " + std::to_string(anchor->round.value));
  }
  if (round.form && form.attempt <= round.form->attempt) return ignore("a later attempt is known");
  if (std::none_of(form.participants.begin(), form.participants.end(), [&](const auto& p) { return p.site == self; })) {
    return ignore("this site has no part in it");
  }
  back_to_ready("another attempt was formed");
  round.form = form;
  round.phase = RoundPhase::kLinking;
  round.link_by = later(now, kLinkLimit);
  pursue_links();
}

// The higher site dials the lower; unless the lower cannot be dialled: then the lower dials.
bool Site::State::dials(const wire::Member& peer) const {
  const bool we_are_lower = *self < peer.site;
  const std::string& address_of_lower = we_are_lower ? join.address : peer.address;
  return address_of_lower.empty() ? we_are_lower : !we_are_lower;
}

void Site::State::pursue_links() {
  if (round.phase != RoundPhase::kLinking) return;
  bool whole = true;
  const wire::Form form = *round.form;
  for (const wire::Participant& p : form.participants) {
    if (!exchanges_with(p.site) || linked(p.site)) continue;
    whole = false;
    const auto peer = roster.find(p.site);
    if (peer == roster.end()) continue;  // the coordinator is about to form another attempt
    if (peer->second.address.empty() && join.address.empty()) {
      return report_unreached(p.site, "neither of the two can be dialled");
    }
    if (dials(peer->second)) dial_peer(p.site);
  }
  if (whole) start_exchange();
}

void Site::State::start_exchange() {
  std::vector<LinkId> links;
  for (const wire::Participant& p : round.form->participants) {
    links.push_back(exchanges_with(p.site) ? link_of.at(p.site) : LinkId{0});
    peer_dials.erase(p.site);
  }
  round.phase = RoundPhase::kExchanging;
  out.emplace_back(StartExchange{*round.form, *self, std::move(links)});
}

// An attempt is over for us; the parameters still stand still, and the coordinator still counts us as ready.
void Site::State::back_to_ready(const std::string& why) {
  switch (round.phase) {
    case RoundPhase::kExchanging:
    case RoundPhase::kDone: out.emplace_back(CancelExchange{why}); [[fallthrough]];
    case RoundPhase::kLinking: round.phase = RoundPhase::kReady; return;
    case RoundPhase::kTraining:
    case RoundPhase::kReady:
    case RoundPhase::kApplying: return;
  }
}

void Site::State::report_unreached(SiteId peer, const std::string& reason) {
  send_up(wire::Unreached{round.form->round, round.form->attempt, peer, reason});
  back_to_ready("no exchange with " + name_of(peer) + ": " + reason);
}

void Site::State::on_commit(const wire::Commit& commit) {
  const std::string what = "the coordinator committed attempt " + std::to_string(commit.attempt.value) + " of round " +
                           std::to_string(commit.round.value);
  if (commit.term < term || (anchor && commit.round <= anchor->round)) return;
  if (!anchor || membership != Membership::kActive || commit.round.value != anchor->round.value + 1) {
    return fail(
        internal_error(what + ", while this site stands at round " + std::to_string(anchor ? anchor->round.value : 0)));
  }
  const bool null_round = commit.attempt.value == 0 && commit.contributors.empty();
  const bool waits = round.phase != RoundPhase::kTraining && round.phase != RoundPhase::kApplying;
  const bool completed = round.phase == RoundPhase::kDone && in_attempt(commit.round, commit.attempt);
  if (!(null_round ? waits : completed)) {
    return fail(
        internal_error(what + ", which this site has not completed: coordinator and site disagree, report this"));
  }
  if (null_round) back_to_ready("nobody contributes");
  round.outcome = RoundDone{commit.round, commit.attempt, {}, {}};
  if (null_round) {
    for (const auto& [site, member] : roster) round.outcome.members.push_back(member.name);
  } else {
    for (const wire::Participant& p : round.form->participants) round.outcome.members.push_back(name_of(p.site));
  }
  for (const SiteId site : commit.contributors) round.outcome.contributors.push_back(name_of(site));
  round.phase = RoundPhase::kApplying;
  out.emplace_back(ApplyCommit{commit, round.declined || round.stale});
}

void Site::State::on_applied(const Applied& event) {
  if (round.phase != RoundPhase::kApplying || event.round != round.outcome.round) {
    return note(Note::Level::kWarning, "ignored",
                "round " + std::to_string(event.round.value) + " was applied, which was not asked for");
  }
  anchor->round = event.round;
  anchor->digest = event.state;
  join.offer = {anchor->run, anchor->round, anchor->digest};
  if (membership == Membership::kActive) send_up(wire::Adopted{anchor->run, anchor->round, anchor->digest});
  out.emplace_back(std::move(round.outcome));
  round = RoundState{};
  answer_fetches();
}

void Site::State::on_round_tick() {
  if (round.phase == RoundPhase::kLinking && now >= round.link_by) {
    for (const wire::Participant& p : round.form->participants) {
      if (!exchanges_with(p.site) || linked(p.site)) continue;
      const auto dial = peer_dials.find(p.site);
      const std::string last = dial == peer_dials.end() ? "" : ", last: " + dial->second.last_reason;
      return report_unreached(p.site, "no link within " + in_seconds(kLinkLimit) + last);
    }
  }
  const Duration limit = kRoundLimits * config.round_timeout + up.grace;
  if (round.phase != RoundPhase::kTraining && round.phase != RoundPhase::kApplying &&
      now >= later(round.since, limit)) {
    fail(timed_out("gave up after " + in_seconds(limit) + " (from COLLAB_ROUND_TIMEOUT): " + waiting_for(now)));
  }
}

}  // namespace collab::protocol
