// A site's part in a round: ready, an attempt, done, the commit.
#include <algorithm>
#include <bit>

#include "core/protocol/attempt.h"
#include "core/protocol/mutants.h"
#include "core/protocol/site/site_state.h"

namespace collab::protocol {

namespace {

double weight_of(WeightBy by, const Trigger& uncounted) {
  switch (by) {
    case WeightBy::kSamples: return static_cast<double>(uncounted.samples);
    case WeightBy::kSteps: return static_cast<double>(uncounted.steps);
    case WeightBy::kEqual: return uncounted.steps > 0 ? 1.0 : 0.0;
  }
  return 0;
}

}  // namespace

void Site::State::send_ready() {
  const bool heard = membership == SitePhase::kActive || (membership == SitePhase::kWaiting && join_done);
  const bool waits = round.phase == RoundPhase::kReady || round.phase == RoundPhase::kDone;
  if (!heard || !waits || round.ready_sent) return;
  round.ready_sent = true;
  // What was put into an attempt before the parameters moved on may yet be committed, by a leader that hears of it:
  // until another anchor tells, nothing is contributed besides. Else what came after could not be told from it.
  const bool open = pending && pending->snapshot && !mutant(Mutant::kContributedTwice);
  const Trigger& known = open ? round.trigger : counted;
  const Trigger uncounted{round.trigger.samples - known.samples, round.trigger.steps - known.steps};
  wire::Ready ready{RoundId{anchor->round.value + 1},
                    weight_of(config.weight, uncounted),
                    uncounted.samples,
                    uncounted.steps,
                    anchor->digest,
                    round.exchanged_since};
  for (const float element : round.trigger.sampled_delta)
    ready.sampled_delta.push_back(std::bit_cast<std::uint32_t>(element));
  ready.up_kbit = round.trigger.up_kbit;
  ready.down_kbit = round.trigger.down_kbit;
  send_up(std::move(ready));
}

bool Site::State::in_attempt(RoundId number, AttemptId attempt) const {
  return round.start && round.start->round == number && round.start->attempt == attempt;
}

// Chunks flow between a slice's owner and everybody, so two sites that own nothing need no link.
bool Site::State::exchanges_with(SiteId peer) const {
  if (!round.start || peer == self) return false;
  const auto& in = round.start->participants;
  if (std::none_of(in.begin(), in.end(), [&](const auto& p) { return p.site == peer && p.here; })) return false;
  return std::any_of(round.start->slices.begin(), round.start->slices.end(),
                     [&](const wire::Slice& slice) { return slice.owner == peer || slice.owner == *self; });
}

void Site::State::on_start_attempt(const wire::StartAttempt& start) {
  const std::string what = "attempt " + std::to_string(start.attempt.value) + " of round " +
                           std::to_string(start.round.value) + " was formed";
  const auto ignore = [&](const std::string& why) { note(Note::Level::kWarning, "ignored", what + ", but " + why); };
  if (start.term < term && !mutant(Mutant::kStartAttemptOfOlderTerm)) return ignore("under an older term");
  if (membership != SitePhase::kActive || !round.ready_sent) return ignore("this site is not ready");
  if (round.phase == RoundPhase::kApplying) return ignore("the round's commit is being applied");
  if (start.run != anchor->run || start.round.value != anchor->round.value + 1) {
    return ignore("this site stands at round " + std::to_string(anchor->round.value));
  }
  if (round.start && start.attempt <= round.start->attempt) return ignore("a later attempt is known");
  if (start.generation != join.generation || (!join.helper && start.fingerprint != join.fingerprint)) {
    return ignore("it is of another model than this site's: of generation " + std::to_string(start.generation) +
                  ", this site trains generation " + std::to_string(join.generation));
  }
  if (std::none_of(start.participants.begin(), start.participants.end(),
                   [&](const auto& p) { return p.site == self && p.here; })) {
    return ignore("this site has no part in it");
  }
  back_to_ready("another attempt was formed");
  forget_attempt();
  if (round.exchanged_since.value == 0) round.exchanged_since = start.attempt;
  round.start = start;
  ++round.attempts;
  member_left.clear();
  attempted = wire::Proposal{start};
  if (start.slices.empty()) {  // nobody has anything to contribute
    round.phase = RoundPhase::kDone;
    attempted->accepted = holds_mean = true;
    if (mutant(Mutant::kDoneBeforeDurable)) send_up(wire::Done{term, start.round, start.attempt, {}});
    return say_when_durable(wire::Done{term, start.round, start.attempt, {}});
  }
  keep_record();
  round.phase = RoundPhase::kLinking;
  round.link_by = later(now, kLinkLimit);
  round.both_dial = later(now, kOneDials);
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
  const wire::StartAttempt start = *round.start;
  for (const wire::Participant& p : start.participants) {
    if (!exchanges_with(p.site) || linked(p.site)) continue;
    whole = false;
    const auto peer = roster.find(p.site);
    if (peer == roster.end()) continue;  // the coordinator is about to form another attempt
    if (peer->second.address.empty() && join.address.empty()) {
      return report_unreachable(p.site,
                                "neither of the two can be dialled: run `collab helper` on a machine that both reach");
    }
    if (dials(peer->second) || now >= round.both_dial) dial_peer(p.site);
  }
  if (whole) start_exchange();
}

bool Site::State::contributes() const {
  const auto& in = round.start->participants;
  return std::any_of(in.begin(), in.end(), [&](const auto& p) { return p.site == self && p.weight > 0; });
}

void Site::State::start_exchange() {
  std::vector<LinkId> links;
  for (const wire::Participant& p : round.start->participants) {
    links.push_back(exchanges_with(p.site) ? link_of.at(p.site) : LinkId{0});
    peer_dials.erase(p.site);
  }
  round.phase = RoundPhase::kExchanging;
  // From here on the others may hold all of it, and a successor may commit the attempt without us.
  if (contributes()) pending = Pending{round.trigger, false};
  out.emplace_back(StartExchange{*round.start, *self, std::move(links)});
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

void Site::State::report_unreachable(SiteId peer, const std::string& reason) {
  send_up(wire::PeerUnreachable{round.start->round, round.start->attempt, peer, reason});
  back_to_ready("no exchange with " + name_of(peer) + ": " + reason);
}

// Once we are done the other may still lack what was on its way to it. We keep what we have: it may be committed.
void Site::State::lose_exchange_link(SiteId peer, const std::string& why) {
  if (round.phase == RoundPhase::kExchanging) return report_unreachable(peer, why);
  if (round.phase == RoundPhase::kDone) {
    send_up(wire::PeerUnreachable{round.start->round, round.start->attempt, peer, "after this site was done: " + why});
  }
}

// It was applied while this site asked to be let in, which its leader cannot know.
void Site::State::confirm(const wire::Commit& commit) {
  if (commit.round != anchor->round || membership != SitePhase::kWaiting) return;
  membership = SitePhase::kActive;
  send_up(wire::AnchorInstalled{anchor->run, anchor->round, anchor->digest, acceptor});
}

void Site::State::on_commit(const wire::Commit& commit) {
  const std::string what = "the coordinator committed attempt " + std::to_string(commit.attempt.value) + " of round " +
                           std::to_string(commit.round.value);
  if (commit.term < term && !mutant(Mutant::kCommitOfOlderTerm)) return;
  if (anchor && commit.run == anchor->run && commit.round <= anchor->round) return confirm(commit);
  if (leave_ack) return;  // what it was done with was given up when it began to leave
  const bool of_ours = kept_done() && attempted->start.run == commit.run && attempted->start.round == commit.round &&
                       attempted->start.attempt == commit.attempt;
  if (of_ours && round.phase == RoundPhase::kApplying && membership == SitePhase::kWaiting) {
    membership = SitePhase::kActive;  // the leader is told once it is applied
    return;
  }
  if (!anchor || commit.round.value != anchor->round.value + 1 || !of_ours || round.phase == RoundPhase::kApplying) {
    return fail(
        internal_error(what + ", which this site has not completed: coordinator and site disagree, report this"));
  }
  membership = SitePhase::kActive;
  if (round.phase != RoundPhase::kTraining) return apply(commit);
  owed = commit;
  note(Note::Level::kInfo, "resume", what + " while this site trained on; it is applied at the next trigger");
}

void Site::State::apply(const wire::Commit& commit) {
  const wire::StartAttempt& start = attempted->start;
  round.outcome = RoundDone{commit.round, std::max(1U, round.attempts), {}, {}};
  round.outcome.intervals = commit.intervals;
  for (const wire::Participant& p : start.participants) round.outcome.members.push_back(p.name);
  const wire::Past past = past_of(start, attempted->slices);
  round.outcome.contributors = past.contributors;
  const bool contributed = std::ranges::find(past.contributors, join.site) != past.contributors.end();
  Base base = Base::kOldAnchor;
  if (round.declined) {
    base = Base::kUnfit;
    counted = round.trigger;
  } else if (contributed && pending) {
    base = pending->snapshot ? Base::kSnapshot : Base::kParameters;
    counted = pending->total;
  }
  pending.reset();
  no_quorum_since = kNever;
  recent.push_back(past);
  if (recent.size() > kRecentRounds) recent.erase(recent.begin());
  round.phase = RoundPhase::kApplying;
  const bool bare = mutant(Mutant::kAnchorWithoutMembership);
  out.emplace_back(ApplyCommit{commit, base, bare ? KnownMembership{} : as_known(start.voters)});
}

void Site::State::on_applied(const Applied& event) {
  if (round.phase != RoundPhase::kApplying || event.round != round.outcome.round) {
    return note(Note::Level::kWarning, "ignored",
                "round " + std::to_string(event.round.value) + " was applied, which was not asked for");
  }
  anchor->round = event.round;
  anchor->digest = event.state;
  join.offer = offer();
  std::vector<wire::Voter> list = std::exchange(attempted, std::nullopt)->start.voters;
  agree_on(join.offer, mutant(Mutant::kVotersKeptBySite) ? voters : std::move(list));
  holds_mean = false;
  keep_record();
  if (membership == SitePhase::kActive)
    send_up(wire::AnchorInstalled{anchor->run, anchor->round, anchor->digest, acceptor});
  if (membership == SitePhase::kAsking && up.join_sent) {  // whom others wait for is judged by what it said
    join.report = report();
    send_up(join);
  }
  round.outcome.samples = counted.samples;
  out.emplace_back(std::move(round.outcome));
  round = RoundState{};
  answer_fetches();
}

// The coordinator has given up every attempt at this round it knows of, or has passed judgement on it. What we put into
// the last one is remembered all the same: another coordinator may have committed it.
void Site::State::forget_attempt() {
  if (!attempted) return;
  attempted->accepted = holds_mean = false;
  attempted->slices.clear();
}

void Site::State::on_round_skipped(const wire::RoundSkipped& skip_round) {
  if (skip_round.term < term || !anchor || skip_round.round.value != anchor->round.value + 1 || !at_trigger()) return;
  if (round.phase == RoundPhase::kDone) out.emplace_back(CancelExchange{skip_round.reason});
  forget_attempt();
  if (round.phase == RoundPhase::kDone) round.phase = RoundPhase::kReady;
  skip(skip_round.reason);
}

// Nobody waits without end: the anchor stands, what was trained stays uncounted. An exchange we were done with is kept,
// and what we put into it is set aside before the parameters move on.
void Site::State::skip(const std::string& reason) {
  const RoundId of{anchor->round.value + 1};
  if (round.phase != RoundPhase::kDone) back_to_ready(reason);
  if (round.declined) {  // all of it is given up, what was put into an attempt before with it
    out.emplace_back(Rebase{Base::kUnfit});
    counted = round.trigger;
    pending.reset();
  } else if (pending && !pending->snapshot) {
    pending->snapshot = true;
    out.emplace_back(TakeSnapshot{});
  }
  const bool told = no_quorum_since != kNever;  // once, until a round comes about again
  if (!told) no_quorum_since = now;
  note(told ? Note::Level::kDebug : Note::Level::kWarning, "no-quorum",
       "no round " + std::to_string(of.value) + " for now: " + reason + "; this site trains on, the anchor stands");
  round = RoundState{};
  out.emplace_back(RoundSkipped{of, reason});
}

// A helper waits for others to train, however long that takes; while it has a link the coordinator bounds what it does.
TimePoint Site::State::gives_up_at() const {
  return join.helper ? kNever : later(round.since, kRoundLimits * config.round_timeout + up.grace);
}

void Site::State::on_round_tick() {
  if (round.phase == RoundPhase::kLinking && now >= round.link_by) {
    for (const wire::Participant& p : round.start->participants) {
      if (!exchanges_with(p.site) || linked(p.site)) continue;
      const auto dial = peer_dials.find(p.site);
      const std::string last = dial == peer_dials.end() ? "" : ", last: " + dial->second.last_reason;
      const std::string both =
          cannot_be_dialled() ? "; nobody can dial " + join.site + ": run `collab helper` on a machine that both reach"
                              : "";
      return report_unreachable(p.site, "no link within " + in_seconds(kLinkLimit) + last + both);
    }
  }
  if (!at_trigger()) return;
  if (coordinator_given_up()) {
    return skip("no coordinator at " + addresses() + " within " + in_seconds(up.grace) +
                " (COLLAB_LINK_GRACE; last: " + up.last_reason + ")");
  }
  if (now < gives_up_at()) return;
  const Duration limit = kRoundLimits * config.round_timeout + up.grace;
  const std::string whom = waiting_for(now);
  if (up.link) drop_coordinator("it bounds no wait: " + whom);
  skip("gave up after " + in_seconds(limit) + " (from COLLAB_ROUND_TIMEOUT): " + whom);
}

}  // namespace collab::protocol
