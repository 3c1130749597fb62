#include "core/protocol/site/site_round.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/mutants.h"
#include "core/protocol/site/site_parts.h"
#include "core/wire/limits.h"
#include "core/wire/rules.h"

namespace collab::protocol {
namespace {

using Counted = ContributedWork::Counted;

double weight_of(WeightBy by, const Counted& uncounted) {
  switch (by) {
    case WeightBy::kSamples: return std::min(static_cast<double>(uncounted.samples), wire::kMaxWeight);
    case WeightBy::kSteps: return std::min(static_cast<double>(uncounted.steps), wire::kMaxWeight);
    case WeightBy::kEqual: return uncounted.steps > 0 ? 1.0 : 0.0;
  }
  return 0;
}

// For this long only one of the two sites dials, then both: a site that cannot be reached from here may reach this one.
constexpr Duration kOneDials = std::chrono::seconds(3);

}  // namespace

bool SiteRound::is_counted(const wire::InstallAnchor& install) const {
  switch (install.counted) {
    case wire::Counted::kNo: return false;
    case wire::Counted::kYes:
      return work_.can_be_in(install.attempt) || (work_.is_open() && mutant(Mutant::kCountedByName));
    case wire::Counted::kUnknown: return work_.is_open();
  }
  return false;
}

// The swarm went on without us. What we contributed is in the new anchor, unless the coordinator knows that it is not.
// If the coordinator does not know, it counts as being there, so that nothing is ever counted twice.
void SiteRound::rebase(const wire::InstallAnchor& install, bool received) {
  // The same anchor under another name has nothing new in it. But others may have our contribution to the next round.
  const bool counts = is_counted(install);
  if (!received && !round_.declined && !counts) return forget();
  std::string what = "none of it has been counted yet";
  Base base = Base::kOldAnchor;
  if (round_.declined) {
    base = Base::kUnfit;
    work_.give_up(round_.trigger);
    what = "it cannot be used and is dropped";
  } else if (counts) {
    base = work_.mark_counted();
    what = install.counted == wire::Counted::kYes ? "what was contributed is part of it"
                                                  : "what was contributed may be part of it and is not counted again";
  }
  all_->note(Note::Level::kWarning, "rebase",
             "the swarm went on to round " + std::to_string(install.round.value) + " while this site was at " +
                 std::to_string(all_->held.anchor()->round.value) +
                 "; what it has trained since then is moved onto the new anchor: " + what + " [join.rebase]");
  if (round_.phase == Phase::kTraining) {
    owed_base_ = base;
  } else {
    all_->out.emplace_back(Rebase{base});
  }
  forget();
}

void SiteRound::forget() {
  round_.declined = false;
  work_.close();
  all_->acceptor.drop_attempt();
  owed_.reset();
  round_.start.reset();  // attempts at the round after another anchor are numbered anew
}

void SiteRound::on_trigger(const Trigger& event) {
  if (round_.phase != Phase::kTraining) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "a trigger came while a round is under way [round.trigger-twice]");
  }
  round_ = Record{};
  round_.phase = all_->acceptor.is_done() ? Phase::kDone : Phase::kReady;
  if (all_->acceptor.is_done()) round_.start = all_->acceptor.attempted()->start;
  round_.trigger = event;
  round_.since = all_->now;
  if (owed_base_) all_->out.emplace_back(Rebase{*std::exchange(owed_base_, std::nullopt)});
  if (owed_) {
    round_.owed = true;
    return apply(*std::exchange(owed_, std::nullopt));
  }
  if (all_->coordinator.given_up()) return skip(nobody_leads_text(""));
  send_ready();
}

// A candidate that lets no site in says which sites it waits for.
std::string SiteRound::nobody_leads_text(const std::string& within) const {
  const CoordinatorLink& coordinator = all_->coordinator;
  if (coordinator.link()) return all_->membership.waiting_text(all_->now);
  return "no coordinator at " + coordinator.addresses() + within + " (last: " + coordinator.last_reason() + ")";
}

void SiteRound::on_exchanged(const ExchangeComplete& event) {
  if (round_.phase != Phase::kExchanging || !in_attempt(event.round, event.attempt)) return;
  round_.phase = Phase::kDone;
  all_->acceptor.accept(event.slices);
  // All contributors have begun this attempt, so no earlier one can be committed any more.
  if (!contributes()) work_.close();
  send_done(event.slices);
}

void SiteRound::send_done(const std::vector<Digest>& slices) {
  const wire::Done done{all_->acceptor.term(), round_.start->round, round_.start->attempt, slices};
  if (mutant(Mutant::kDoneBeforeDurable)) all_->coordinator.send(done);
  all_->writes.send_when_durable(done);
}

void SiteRound::on_unfit(const ContributionUnfit& event) {
  if (round_.phase != Phase::kExchanging || !in_attempt(event.round, event.attempt)) return;
  round_.declined = true;
  work_.close();
  all_->note(Note::Level::kError, "declined",
             "this site's delta is left out of round " + std::to_string(event.round.value) +
                 " and the swarm's anchor is taken instead: " + event.reason + " [round.unfit]");
  all_->coordinator.send(wire::Decline{event.round, event.attempt, event.reason});
  back_to_ready("our delta is unfit");
}

void SiteRound::on_exchange_failed(const ExchangeFailed& event) {
  if (round_.phase != Phase::kExchanging || !in_attempt(event.round, event.attempt)) return;
  // On a new link, nothing sent before counts as delivered. A site that was lost and is back has a new link already.
  const wire::Participant* const peer = participant_of(*round_.start, event.peer);
  if (peer == nullptr || peer->here) all_->peers.close_link_to(event.peer, event.reason);
  if (round_.phase == Phase::kExchanging) report_unreachable(event.peer, event.reason);  // unless link_lost() did
}

void SiteRound::send_ready() {
  const bool heard = all_->membership.phase() == SitePhase::kActive ||
                     (all_->membership.phase() == SitePhase::kWaiting && all_->membership.join_done());
  const bool waits = round_.phase == Phase::kReady || round_.phase == Phase::kDone;
  if (!heard || !waits || round_.ready_sent) return;
  round_.ready_sent = true;
  // A contribution made before the parameters moved on may still be committed, by a leader that hears of it. Nothing
  // more is contributed until another anchor tells, because the two could not be told apart.
  const bool open = work_.is_set_aside() && !mutant(Mutant::kContributedTwice);
  const Counted all{round_.trigger.samples, round_.trigger.steps};
  const RoundId next = all_->held.next_round();
  const RoundId of = mutant(Mutant::kFragmentsCountTogether) ? all_->held.anchor()->round : next;
  const Counted known = open ? all : work_.counted(fragments().in_turn(of));
  const Counted uncounted{all.samples - known.samples, all.steps - known.steps};
  wire::Ready ready{all_->held.next_round(),     weight_of(all_->config.weight, uncounted),
                    uncounted.samples,           uncounted.steps,
                    all_->held.anchor()->digest, round_.exchanged_since};
  for (const float element : round_.trigger.sampled_delta)
    ready.sampled_delta.push_back(std::bit_cast<std::uint32_t>(element));
  ready.measured = round_.trigger.measured;
  ready.period = period_;
  all_->coordinator.send(std::move(ready));
}

bool SiteRound::in_attempt(RoundId number, AttemptId attempt) const {
  return round_.start && round_.start->round == number && round_.start->attempt == attempt;
}

// Chunks flow between a slice's owner and all others, so two sites that own nothing need no link.
bool SiteRound::exchanges_with(SiteId peer) const {
  if (!round_.start || peer == all_->membership.self()) return false;
  if (!takes_part(*round_.start, peer)) return false;
  return std::any_of(round_.start->slices.begin(), round_.start->slices.end(), [&](const wire::Slice& slice) {
    return slice.owner == peer || slice.owner == *all_->membership.self();
  });
}

std::string SiteRound::why_ignored(const wire::StartAttempt& start) const {
  if (start.term < all_->acceptor.term() && !mutant(Mutant::kStartAttemptOfOlderTerm)) return "under an older term";
  if (!is_ready()) return "this site is not ready";
  if (!is_short(start)) return "its names are longer in total than a site can remember";
  if (round_.phase == Phase::kApplying) return "the round's commit is being applied";
  if (start.run != all_->held.anchor()->run || start.round != all_->held.next_round()) {
    return "this site is at round " + std::to_string(all_->held.anchor()->round.value);
  }
  // A newer term starts its own numbers, which may have wrapped around.
  if (round_.start && start.term <= round_.start->term && start.attempt <= round_.start->attempt)
    return "a later attempt is known";
  const wire::Join& join = all_->membership.join();
  if (start.generation != join.generation) {
    return "it is for model " + std::to_string(start.generation) + " of the script, and this site trains its model " +
           std::to_string(join.generation);
  }
  if (!join.helper && start.fingerprint != join.fingerprint) {
    return "it is for a model with the fingerprint " + to_hex(start.fingerprint) + ", and this site's has " +
           to_hex(join.fingerprint);
  }
  if (!takes_part(start, *all_->membership.self())) return "this site takes no part in it";
  const std::uint64_t elements = join.elements;
  const ElementRange covered = covered_by(start.slices);
  if (const ElementRange due = fragments().range_of(elements, start.round); covered.size() > 0 && covered != due) {
    return "it covers elements " + std::to_string(covered.begin) + " to " + std::to_string(covered.end) +
           ", expected those that are due, " + std::to_string(due.begin) + " to " + std::to_string(due.end);
  }
  return {};
}

bool SiteRound::is_ready() const { return all_->membership.phase() == SitePhase::kActive && round_.ready_sent; }

Fragments SiteRound::fragments() const {
  const wire::Join& join = all_->membership.join();
  return fragments_of(join.settings, join.elements);
}

void SiteRound::on_start_attempt(const wire::StartAttempt& start) {
  if (const std::string why = why_ignored(start); !why.empty()) {
    all_->note(Note::Level::kWarning, "ignored",
               "attempt " + std::to_string(start.attempt.value) + " of round " + std::to_string(start.round.value) +
                   " was formed, but " + why + " [round.start-ignored]");
    // Our Ready crossed the message that made it void. The leader counts on us and would wait, but it notices a closed
    // link. The site dials again at once, as a Leave may be due. A site that leaves says so on this link.
    if (!is_ready() && !all_->membership.leaves() && !mutant(Mutant::kStartIgnoredInSilence)) {
      const std::uint32_t candidate = all_->coordinator.candidate();
      all_->coordinator.drop("it counts on this site, which is not ready");
      all_->coordinator.go_to(candidate);
    }
    return;
  }
  back_to_ready("another attempt was formed");
  all_->acceptor.forget_attempt();
  all_->writes.take_back_done();
  if (round_.exchanged_since.value == 0) round_.exchanged_since = start.attempt;
  round_.start = start;
  ++round_.attempts;
  all_->acceptor.take_part(start);
  if (start.slices.empty()) {  // no site has anything to contribute
    round_.phase = Phase::kDone;
    all_->acceptor.accept({});
    return send_done({});
  }
  all_->writes.keep();
  round_.phase = Phase::kLinking;
  round_.link_by = later(all_->now, kLinkLimit);
  round_.both_dial = later(all_->now, kOneDials);
  pursue_links();
}

// The higher site dials the lower one. If the lower one cannot be dialled, the lower one dials.
bool SiteRound::dials(const wire::Member& peer) const {
  const bool we_are_lower = *all_->membership.self() < peer.site;
  const std::string& address_of_lower = we_are_lower ? all_->membership.join().address : peer.address;
  return address_of_lower.empty() ? we_are_lower : !we_are_lower;
}

void SiteRound::pursue_links() {
  if (round_.phase != Phase::kLinking) return;
  bool whole = true;
  const wire::StartAttempt start = *round_.start;
  for (const wire::Participant& p : start.participants) {
    if (!exchanges_with(p.site) || all_->peers.linked(p.site)) continue;
    whole = false;
    const wire::Member* const peer = all_->roster.find(p.site);
    if (peer == nullptr) continue;  // the coordinator will form another attempt in a moment
    if (peer->address.empty() && all_->membership.join().address.empty()) {
      return report_unreachable(p.site,
                                "neither of the two can be dialled: run `collab helper` on a machine that both reach");
    }
    if (dials(*peer) || all_->now >= round_.both_dial) all_->peers.dial(p.site);
  }
  if (whole) start_exchange();
}

bool SiteRound::contributes() const { return wire::contributes(*round_.start, *all_->membership.self()); }

void SiteRound::start_exchange() {
  std::vector<LinkId> links;
  for (const wire::Participant& p : round_.start->participants) {
    links.push_back(exchanges_with(p.site) ? *all_->peers.link_to(p.site) : LinkId{0});
    all_->peers.forget_dial(p.site);
  }
  round_.phase = Phase::kExchanging;
  // From here on the others may hold our whole contribution. A successor may commit the attempt without us.
  const RoundId round = round_.start->round;
  if (contributes()) work_.contribute(round_.trigger, fragments().in_turn(round), round_.start->attempt);
  all_->out.emplace_back(StartExchange{*round_.start, *all_->membership.self(), std::move(links)});
}

// An attempt is over for us. The parameters still stand still, and the coordinator still counts us as ready.
void SiteRound::back_to_ready(const std::string& why) {
  switch (round_.phase) {
    case Phase::kExchanging:
    case Phase::kDone: all_->out.emplace_back(CancelExchange{why}); [[fallthrough]];
    case Phase::kLinking: round_.phase = Phase::kReady; return;
    case Phase::kTraining:
    case Phase::kReady:
    case Phase::kApplying: return;
  }
}

void SiteRound::report_unreachable(SiteId peer, const std::string& reason) {
  all_->coordinator.send(wire::PeerUnreachable{round_.start->round, round_.start->attempt, peer, reason});
  back_to_ready("no exchange with " + all_->name_of(peer) + ": " + reason);
}

// Once we are done, the other side may still lack what was on its way. We keep what we have: it may be committed.
void SiteRound::lose_exchange_link(SiteId peer, const std::string& why) {
  if (round_.phase == Phase::kExchanging) return report_unreachable(peer, why);
  if (round_.phase == Phase::kDone) {
    all_->coordinator.send(
        wire::PeerUnreachable{round_.start->round, round_.start->attempt, peer, "after this site was done: " + why});
  }
}

// The commit was applied while this site asked to be let in. The leader cannot know that.
void SiteRound::confirm(const wire::Commit& commit) {
  if (commit.round != all_->held.anchor()->round || all_->membership.phase() != SitePhase::kWaiting) return;
  all_->membership.becomes_active();
  all_->held.announce();
  retract_ready();  // an earlier one reached a leader that thought this site lacked the anchor
  send_ready();
}

void SiteRound::on_commit(const wire::Commit& commit) {
  const std::string what = "the coordinator committed attempt " + std::to_string(commit.attempt.value) + " of round " +
                           std::to_string(commit.round.value);
  if (commit.term < all_->acceptor.term() && !mutant(Mutant::kCommitOfOlderTerm)) return;
  if (all_->held.anchor() && commit.run == all_->held.anchor()->run && commit.round <= all_->held.anchor()->round)
    return confirm(commit);
  if (all_->membership.leaves()) return;  // the finished attempt was given up when it began to leave
  const bool of_ours = all_->acceptor.is_done_with(commit);
  if (of_ours && round_.phase == Phase::kApplying && all_->membership.phase() == SitePhase::kWaiting) {
    all_->membership.becomes_active();  // the leader is told once it is applied
    return;
  }
  if (!all_->held.anchor() || commit.round != all_->held.next_round() || !of_ours || round_.phase == Phase::kApplying) {
    // A coordinator may send anything. That may end its link, but not the training.
    const std::string why = what + ", which this site has not completed: the coordinator and the site disagree";
    all_->note(Note::Level::kError, "coordinator",
               why + "; the site looks for another coordinator [round.disagreement]");
    return all_->coordinator.turn_from(why);
  }
  all_->membership.becomes_active();
  if (round_.phase != Phase::kTraining) return apply(commit);
  owed_ = commit;
  all_->note(Note::Level::kInfo, "resume", what + " while this site trained on; it is applied at the next trigger");
}

void SiteRound::apply(const wire::Commit& commit) {
  const wire::StartAttempt& start = all_->acceptor.attempted()->start;
  round_.result = RoundDone{commit.round, std::max(1U, round_.attempts), {}, {}};
  follow(commit.period);
  round_.result.period = period_;
  for (const wire::Participant& p : start.participants) round_.result.members.push_back(p.name);
  const wire::Past past = past_of(start, all_->acceptor.attempted()->slices);
  round_.result.contributors = past.contributors;
  const bool contributed =
      std::ranges::find(past.contributors, all_->membership.join().site) != past.contributors.end();
  Base base = Base::kOldAnchor;
  if (round_.declined) {
    base = Base::kUnfit;
    work_.give_up(round_.trigger);
  } else if (contributed && work_.is_open()) {
    base = work_.mark_counted();
  }
  work_.close();
  skipped_ = 0;
  all_->acceptor.committed(past);
  round_.phase = Phase::kApplying;
  const bool bare = mutant(Mutant::kAnchorWithoutMembership);
  all_->out.emplace_back(ApplyCommit{commit, base, bare ? KnownMembership{} : all_->acceptor.as_known(start.voters)});
}

void SiteRound::on_applied(const Applied& event) {
  if (round_.phase != Phase::kApplying || event.round != round_.result.round) {
    return all_->note(
        Note::Level::kWarning, "ignored",
        "round " + std::to_string(event.round.value) + " was applied, which was not asked for [round.applied-unasked]");
  }
  const wire::Offer anchor{all_->held.anchor()->run, event.round, event.state};
  all_->held.hold(anchor);
  all_->acceptor.agree_on_attempt(anchor);
  all_->writes.keep();
  if (all_->membership.phase() == SitePhase::kActive) all_->held.announce();
  all_->membership.resend_join();
  if (trigger_still_due()) {
    all_->note(Note::Level::kInfo, "resume",
               "round " + std::to_string(event.round.value) +
                   " was committed while this site trained on, and is applied now; what it trained since goes into the "
                   "next round");
    Record next;
    next.phase = Phase::kReady;
    next.trigger = std::move(round_.trigger);
    next.trigger.sampled_delta.clear();  // it was measured from the previous anchor
    next.since = round_.since;
    round_ = std::move(next);
    send_ready();
  } else {
    round_.result.samples = work_.counted(fragments().in_turn(event.round)).samples;
    all_->out.emplace_back(std::move(round_.result));
    round_ = Record{};
  }
  all_->held.answer_fetches();
}

// The trigger was for the round that the others make now. Without this site's Ready they would wait for its next
// trigger, and there may be none.
bool SiteRound::trigger_still_due() const {
  if (!round_.owed || all_->membership.leaves()) return false;
  const Counted counted = work_.counted(fragments().in_turn(all_->held.next_round()));
  return counted.samples < round_.trigger.samples || counted.steps < round_.trigger.steps;
}

void SiteRound::on_skipped(const wire::RoundSkipped& skip_round) {
  if (skip_round.term < all_->acceptor.term() || !all_->held.anchor() || skip_round.round != all_->held.next_round() ||
      !at_trigger())
    return;
  if (round_.phase == Phase::kDone) all_->out.emplace_back(CancelExchange{skip_round.reason});
  all_->acceptor.forget_attempt();
  all_->writes.take_back_done();
  if (round_.phase == Phase::kDone) round_.phase = Phase::kReady;
  skip(skip_round.reason);
}

// No site waits forever: the anchor stays as it is, and what was trained stays uncounted. A finished exchange is kept.
// A copy of what we put into it is kept before the parameters move on.
void SiteRound::skip(const std::string& reason) {
  const RoundId of = all_->held.next_round();
  if (round_.phase != Phase::kDone) back_to_ready(reason);
  if (round_.declined) {  // all of it is given up, including earlier contributions
    all_->out.emplace_back(Rebase{Base::kUnfit});
    work_.give_up(round_.trigger);
  } else if (work_.set_aside()) {
    all_->out.emplace_back(TakeSnapshot{});
  }
  constexpr std::uint32_t kTellsAgain = 20;
  const bool tells = skipped_++ % kTellsAgain == 0;
  const std::string row = skipped_ > 1 ? " (" + std::to_string(skipped_) + " times in a row)" : "";
  all_->note(tells ? Note::Level::kWarning : Note::Level::kDebug, "no-quorum",
             "round " + std::to_string(of.value) + " cannot run yet" + row + ": " + reason +
                 "; this site trains on, and the anchor stays as it is [round.skipped]");
  round_ = Record{};
  all_->out.emplace_back(RoundSkipped{of, reason});
}

std::string SiteRound::waiting_text(TimePoint at) const {
  const std::string number = "round " + std::to_string(all_->held.next_round().value);
  std::vector<std::string> others;
  for (const auto& [site, member] : all_->roster.members()) {
    const bool open = round_.phase == Phase::kLinking && (!exchanges_with(site) || all_->peers.linked(site));
    if (site != all_->membership.self() && !open) others.push_back(member.name);
  }
  const std::string whom = others.empty() ? "the coordinator" : join_words(others);
  const char* are = others.size() < 2 ? " is" : " are";
  const std::string since = " (" + in_seconds(round_.since == kNever ? Duration{0} : at - round_.since) + ")";
  switch (round_.phase) {
    case Phase::kTraining: return all_->optimizer.waiting_text();
    case Phase::kReady: return number + ": waiting until " + whom + are + " ready too" + since;
    case Phase::kLinking: return number + ": waiting for a link to " + whom + since;
    case Phase::kExchanging: return number + ": exchanging with " + whom + since;
    case Phase::kDone: return number + ": waiting for the commit, once " + whom + are + " done too" + since;
    case Phase::kApplying: return number + ": applying the outer step" + since;
  }
  return {};
}

TimePoint SiteRound::next_deadline() const {
  TimePoint next = kNever;
  if (round_.phase == Phase::kLinking) {
    next = std::min(round_.link_by, all_->now < round_.both_dial ? round_.both_dial : kNever);
  }
  return at_trigger() ? std::min({next, gives_up_at(), all_->coordinator.given_up_at()}) : next;
}

void SiteRound::link_lost(SiteId peer, const std::string& why) {
  if (exchanges_with(peer)) lose_exchange_link(peer, why);
  pursue_links();
}

// A finished attempt is kept, as it may have been committed.
void SiteRound::coordinator_lost() {
  if (round_.phase != Phase::kDone) {
    back_to_ready("the coordinator is lost");
    round_.start.reset();
  }
  round_.ready_sent = false;
}

// A helper waits for others to train, however long that takes. While it has a link, the coordinator limits what it
// does.
TimePoint SiteRound::gives_up_at() const {
  return all_->membership.join().helper
             ? kNever
             : later(round_.since, kRoundLimits * all_->config.round_timeout + all_->coordinator.grace());
}

void SiteRound::on_tick() {
  if (round_.phase == Phase::kLinking && all_->now >= round_.link_by) {
    for (const wire::Participant& p : round_.start->participants) {
      if (!exchanges_with(p.site) || all_->peers.linked(p.site)) continue;
      const auto reason = all_->peers.last_reason(p.site);
      const std::string last = reason ? ", last: " + *reason : "";
      const std::string both = all_->peers.cannot_be_dialled()
                                   ? "; no site can dial " + all_->membership.join().site +
                                         ": run `collab helper` on a machine that both reach"
                                   : "";
      return report_unreachable(p.site, "no link within " + in_seconds(kLinkLimit) + last + both);
    }
  }
  if (!at_trigger()) return;
  if (all_->coordinator.given_up()) {
    return skip(nobody_leads_text(" within " + in_seconds(all_->coordinator.grace()) + " (COLLAB_LINK_GRACE)"));
  }
  if (all_->now < gives_up_at()) return;
  const Duration limit = kRoundLimits * all_->config.round_timeout + all_->coordinator.grace();
  const std::string whom = all_->membership.waiting_text(all_->now);
  if (all_->coordinator.link()) all_->coordinator.drop("it kept this round waiting beyond its limit: " + whom);
  skip("this site gave up after " + in_seconds(limit) + " (from COLLAB_ROUND_TIMEOUT): " + whom);
}

}  // namespace collab::protocol
