// A site's membership: finding the coordinator, joining, taking the swarm's anchor, coming back after a loss.
#include <algorithm>
#include <utility>

#include "core/protocol/mutants.h"
#include "core/protocol/site/site_state.h"
#include "core/wire/limits.h"

namespace collab::protocol {

std::string Site::State::addresses() const { return join_words(config.coordinators); }

void Site::State::dial_coordinator() {
  membership = SitePhase::kDialing;
  up.dial_out = true;
  up.dial_at = kNever;
  up.answer_by = later(now, patience());
  out.emplace_back(DialCoordinator{up.candidate});
}

void Site::State::dial_again(const std::string& reason) {
  membership = SitePhase::kDialing;
  up.last_reason = config.coordinators[up.candidate] + ": " + reason;
  up.candidate = static_cast<std::uint32_t>((up.candidate + 1) % config.coordinators.size());
  up.dial_out = false;
  up.dial_at = later(now, up.candidate == 0 ? up.backoff : kFirstBackoff);
  up.answer_by = kNever;
  if (up.candidate == 0) up.backoff = std::min(2 * up.backoff, kLastBackoff);  // nobody in all the list has answered
}

void Site::State::send_join() {
  up.join_sent = true;
  hold.reset();
  up.here.reset();
  up.answer_by = kNever;
  Duration soon = 2 * up.heartbeat;
  // Who was never let in gives up before long: until then it has asked each of them.
  if (!was_member) soon = std::min(soon, config.join_timeout / (2 * static_cast<int>(config.coordinators.size())));
  up.inquiry.next = later(now, soon);
  up.next_heartbeat = later(now, up.heartbeat);
  join.report = report();
  send_up(join);
}

void Site::State::drop_coordinator(const std::string& reason) {
  out.emplace_back(Hangup{*up.link, reason});
  up.link.reset();
  lose_coordinator(reason);
}

// The link is gone. Links to other sites stay, the parameters stand still if they did; what was under way with this
// coordinator is given up, and asked for anew from the next one that answers. What we were done with is kept: it may
// have been committed.
void Site::State::lose_coordinator(const std::string& reason) {
  up.next_heartbeat = kNever;
  if (membership == SitePhase::kLeaving) return leave_done();
  if (lost_at == kNever) lost_at = now;
  if (membership == SitePhase::kAsking) return dial_again(reason);
  if (membership == SitePhase::kActive) {
    up.give_up = later(now, config.join_timeout);
    join.expected_sites = static_cast<std::uint32_t>(roster.size());  // who will come back, should it know nothing
  }
  note(Note::Level::kWarning, "coordinator",
       "the coordinator at " + config.coordinators[up.candidate] + " is lost: " + reason + "; looking for one again");
  if (round.phase != RoundPhase::kDone) {
    back_to_ready("the coordinator is lost");
    round.start.reset();
  }
  round.ready_sent = false;
  drop_installation();
  dial_again(reason);
  up.candidate = 0;  // all look for the first in their list that answers
}

void Site::State::on_refuse(const wire::Refuse& refuse) {
  if (leave_ack) return leave_done();
  if (refuse.behind) return fail(outdated(refuse.reason));
  if (membership != SitePhase::kAsking || !was_member) return fail(refused(refuse.reason));
  // A member that comes back may be early: its old link not yet seen to be dead, its old index taken.
  note(Note::Level::kWarning, "refused", "not let in again yet: " + refuse.reason);
  join.index = wire::kNoIndex;
  drop_coordinator(refuse.reason);
}

// The coordinator bounds this wait; should it fail to, the site does.
void Site::State::on_hold(const wire::Hold& told) {
  if (membership != SitePhase::kAsking) {
    return note(Note::Level::kWarning, "ignored", "the coordinator sent Hold to a site that had not asked");
  }
  if (!hold) note(Note::Level::kInfo, "waiting", told.reason);
  hold = told.reason;
  if (!std::exchange(was_held, true)) up.give_up = later(now, 2 * config.join_timeout);
}

void Site::State::on_welcome(const wire::Welcome& welcome) {
  if (membership != SitePhase::kAsking) {
    return note(Note::Level::kWarning, "ignored", "the coordinator sent Welcome to a site that had not asked");
  }
  if (self && *self != welcome.site) {
    round.exchanged_since = AttemptId{};
    while (!peers.empty()) hang_up_peer(peers.begin()->first, "this site has another number now");
  }
  if (welcome.anew) forget_promises();
  if (welcome.term < term && !mutant(Mutant::kWelcomeOfOlderTerm)) {
    return drop_coordinator("it acts under term " + std::to_string(welcome.term.value) +
                            ", and this site follows term " + std::to_string(term.value));
  }
  if (wire::is_too_far_ahead(welcome.term, term)) {
    return drop_coordinator("it acts under term " + std::to_string(welcome.term.value) +
                            ", and no swarm gets so far ahead of term " + std::to_string(term.value));
  }
  if (term != welcome.term) {
    roster.clear();
    if (was_member) {
      note(Note::Level::kInfo, "coordinator",
           config.coordinators[up.candidate] + " is the coordinator now, under term " +
               std::to_string(welcome.term.value));
    }
  }
  term = welcome.term;
  self = welcome.site;
  was_member = true;
  up.heartbeat = std::chrono::milliseconds(std::max<std::uint32_t>(1, welcome.heartbeat_ms));
  up.grace = std::chrono::milliseconds(std::max<std::uint32_t>(1, welcome.grace_ms));
  up.next_heartbeat = later(now, up.heartbeat);
  up.answer_by = join_done ? kNever : later(now, config.join_timeout + kRoundLimits * config.round_timeout);
  membership = SitePhase::kWaiting;
  lost_at = kNever;
  up.told.clear();
  if (leave_ack) return ack_leave();
  send_ready();
}

void Site::State::on_install_anchor(const wire::InstallAnchor& install) {
  const bool member =
      membership == SitePhase::kWaiting || membership == SitePhase::kInstalling || membership == SitePhase::kActive;
  if (!member || install.term < term || round.phase == RoundPhase::kApplying) {
    return note(Note::Level::kWarning, "ignored", "the coordinator offered an anchor to a site that waits for none");
  }
  if (join.helper) {
    join.generation = install.generation;
  } else if (install.generation != join.generation) {
    return note(Note::Level::kWarning, "ignored",
                "the coordinator offered an anchor of generation " + std::to_string(install.generation) +
                    " of the model, this site trains generation " + std::to_string(join.generation));
  }
  const bool same_round = anchor && anchor->run == install.run && anchor->round == install.round;
  const bool renamed = anchor && anchor->digest == install.digest;
  if (join_done && !same_round && !renamed && round.phase == RoundPhase::kTraining) {
    // Our parameters move: we say what we hold, and take this one at our next trigger.
    membership = SitePhase::kActive;
    return send_up(wire::AnchorInstalled{anchor->run, anchor->round, anchor->digest, acceptor});
  }
  if (names_us(install) && anchor && join.offer.digest != install.digest) {
    // It crossed our word that another anchor is in place here; the coordinator chooses again once it knows.
    membership = SitePhase::kWaiting;
    round.ready_sent = false;
    drop_installation();
    return send_up(wire::AnchorInstalled{anchor->run, anchor->round, anchor->digest, acceptor});
  }
  round.ready_sent = false;
  up.answer_by = kNever;
  member_left.clear();  // its list is newer
  membership = SitePhase::kInstalling;
  if (installation && !installation->keeps && installation->install.run == install.run &&
      installation->install.round == install.round &&
      installation->install.digest == install.digest) {  // who has it is news, the rest is under way
    if (installation->install.sources != install.sources) installation->unreachable_since = kNever;
    installation->install = install;
    member_left.clear();
    installation->give_up = later(now, config.round_timeout + up.grace);
    return settle_sources();
  }
  drop_installation();
  if (!same_round || !renamed) round.exchanged_since = AttemptId{};  // what is to be contributed is another delta
  installation = Installation{};
  installation->install = install;
  installation->give_up = later(now, config.round_timeout + up.grace);
  installation->keeps = names_us(install) || join.offer.digest == install.digest;
  if (!installation->keeps || !same_round || round.phase != RoundPhase::kDone) {
    back_to_ready("the anchor is to be taken from " + sources_text());
  }
  if (!installation->keeps) holds_mean = false;  // it lies where the anchor is received
  if (installation->keeps) {
    out.emplace_back(KeepAnchor{install.run, install.round, install.digest, as_known(install.voters)});
  } else {
    receive_anchor();
  }
}

void Site::State::receive_anchor() {
  const wire::InstallAnchor& install = installation->install;
  overwritten = true;
  out.emplace_back(ReceiveAnchor{install.run, install.round, install.digest, as_known(install.voters)});
  pursue_installation();
}

// An anchor must not come into place that nobody reckons with any more.
void Site::State::drop_installation() {
  if (installation && !installation->keeps) out.emplace_back(StopReceiving{});
  installation.reset();
}

std::string Site::State::sources_text() const {
  std::vector<std::string> names;
  for (const SiteId source : installation->install.sources) names.push_back(name_of(source));
  return join_words(names);
}

void Site::State::pursue_installation() {
  if (!installation || installation->keeps) return;
  bool reachable = false;
  for (const SiteId source : installation->install.sources) {
    if (installation->useless.count(source) != 0) continue;
    const auto member = roster.find(source);
    // Not listed yet: the roster that does so, or another InstallAnchor, is on its way.
    reachable = reachable || linked(source) || member == roster.end() || !member->second.address.empty() ||
                !join.address.empty();
    if (installation->over.count(source) != 0) continue;
    if (const auto link = link_of.find(source); link != link_of.end()) {
      installation->over[source] = link->second;
      out.emplace_back(AddAnchorSource{source, name_of(source), link->second});
    } else if (member != roster.end() && !member->second.address.empty()) {
      dial_peer(source);
    }
    // Else it dials us: a site that cannot be dialled dials every member that can.
  }
  if (!reachable) return unreachable("neither it nor this site can be dialled");
  if (reaches()) {
    installation->unreachable_since = kNever;
  } else if (installation->unreachable_since == kNever) {
    installation->unreachable_since = now;
  }
}

void Site::State::give_up_source(SiteId source) {
  if (installation->over.erase(source) != 0) out.emplace_back(DropAnchorSource{source});
  installation->useless.insert(source);
  settle_sources();
}

void Site::State::settle_sources() {
  const auto& sources = installation->install.sources;
  const bool some_left = std::any_of(sources.begin(), sources.end(),
                                     [this](SiteId other) { return installation->useless.count(other) == 0; });
  if (some_left) return pursue_installation();
  const std::string what = "the anchor of round " + std::to_string(installation->install.round.value) +
                           " cannot be had from " + sources_text();
  if (installation->overtaken) {  // who asks again is told the newer one
    up.give_up = later(now, config.join_timeout);
    return drop_coordinator(what + " any more: they hold another by now");
  }
  begin_again(what);
}

void Site::State::begin_again(const std::string& what) {
  if (installation->here > std::exchange(installation->here_then, installation->here)) installation->tries = 0;
  if (++installation->tries >= kTransferTries) {
    // One alone may be wrong, or lie: by the next round the coordinator knows what most hold.
    if (join_done || installation->install.sources.size() == 1) return drop_coordinator(what);
    return fail(corrupt(what + ": restart this site; if it comes again, suspect its memory"));
  }
  note(Note::Level::kError, "repair", what + "; it is fetched once more from " + sources_text());
  for (const auto& [site, link] : std::exchange(installation->over, {})) out.emplace_back(DropAnchorSource{site});
  installation->useless.clear();
  receive_anchor();
}

void Site::State::on_anchor_moved(SiteId source, const wire::AnchorMoved& moved) {
  if (!installation || installation->over.count(source) == 0) return;
  if (moved.run == installation->install.run && moved.round == installation->install.round)
    return;  // of an earlier question
  note(Note::Level::kWarning, "join",
       name_of(source) + " does not hold the anchor of round " + std::to_string(installation->install.round.value) +
           " any more, but that of run " + std::to_string(moved.run.value) + " round " +
           std::to_string(moved.round.value));
  installation->overtaken = true;
  give_up_source(source);
}

void Site::State::on_anchor_in_place(const AnchorInPlace& event) {
  if (!installation || event.run != installation->install.run || event.round != installation->install.round) return;
  if (event.digest == installation->install.digest) return installation_done();

  const std::string from = installation->keeps ? "here" : "fetched from " + sources_text();
  const std::string what = "the anchor of round " + std::to_string(event.round.value) + " " + from +
                           " has the digest " + to_hex(event.digest) + ", the coordinator expects " +
                           to_hex(installation->install.digest);
  if (!installation->keeps) return begin_again(what);
  if (names_us(installation->install) && (join_done || overwritten)) {
    note(Note::Level::kError, "repair", what + "; the coordinator is told");
    join.offer.digest = event.digest;
    if (anchor) anchor->digest = event.digest;
    membership = SitePhase::kWaiting;
    drop_installation();
    return send_up(wire::AnchorInstalled{event.run, event.round, event.digest, acceptor});
  }
  if (names_us(installation->install)) {
    return fail(corrupt(what + ": restart this site; if it comes again, suspect its memory"));
  }
  note(Note::Level::kError, "repair", what + "; it is fetched from " + sources_text());
  installation->keeps = false;
  receive_anchor();
}

void Site::State::installation_done() {
  const wire::InstallAnchor install = installation->install;
  const bool received = !installation->keeps;
  installation.reset();
  overwritten = false;
  for (const SiteId source : install.sources) peer_dials.erase(source);
  if (join_done && anchor && (anchor->run != install.run || anchor->round != install.round)) rebase(install, received);
  anchor = Holding{install.run, install.round, install.digest};
  join.offer = offer();
  agree_on(join.offer, install.voters);
  keep_record();
  membership = SitePhase::kActive;
  up.inquiry.next = later(now, up.grace);
  up.backoff = kFirstBackoff;
  send_up(wire::AnchorInstalled{install.run, install.round, install.digest, acceptor});
  join.index = self->value;  // wished for again, should it have to come back
  if (!join_done) {
    join_done = true;
    out.emplace_back(JoinDone{*self, install.run, install.round});
  }
  answer_fetches();
  send_ready();
}

// The swarm went on without us. What we contributed is in the new anchor, unless the coordinator knows that it is not;
// if it does not know, it counts as being there, so that nothing is ever counted twice.
void Site::State::rebase(const wire::InstallAnchor& install, bool received) {
  // The same anchor under another name: nothing is in it. But others may have what was put into the round after it.
  const bool counts = pending && install.counted != wire::Counted::kNo;
  if (!received && !round.declined && !counts) return forget_round();
  std::string what = "nothing of it was counted yet";
  Base base = Base::kOldAnchor;
  if (round.declined) {
    base = Base::kUnfit;
    counted = round.trigger;
    what = "it is unfit and given up";
  } else if (counts) {
    base = pending->snapshot ? Base::kSnapshot : Base::kParameters;
    counted = pending->total;
    what = install.counted == wire::Counted::kYes ? "what was contributed is part of it"
                                                  : "what was contributed may be part of it and is not counted again";
  }
  note(Note::Level::kWarning, "rebase",
       "the swarm went on to round " + std::to_string(install.round.value) + " while this site was at " +
           std::to_string(anchor->round.value) + "; what it trained since is moved onto the new anchor: " + what);
  if (round.phase == RoundPhase::kTraining) {
    owed_base = base;
  } else {
    out.emplace_back(Rebase{base});
  }
  forget_round();
}

void Site::State::forget_round() {
  round.declined = false;
  pending.reset();
  attempted.reset();
  holds_mean = false;
  owed.reset();
  round.start.reset();  // attempts at a round after another anchor are numbered anew
}

wire::Offer Site::State::offer() const { return {anchor->run, anchor->round, anchor->digest}; }

void Site::State::on_join_tick() {
  const bool outside = membership == SitePhase::kDialing || membership == SitePhase::kAsking;
  if (outside && !join_done && now >= up.give_up) {
    if (!up.told.empty()) {
      return fail(unavailable("this site was not let in within " + in_seconds(config.join_timeout) +
                              " (COLLAB_JOIN_TIMEOUT) by the coordinator at " + addresses() + ", which is " + up.told));
    }
    if (up.here) {
      return fail(unavailable("this site was not let in within " + in_seconds(config.join_timeout) +
                              " (COLLAB_JOIN_TIMEOUT) by the coordinator at " + addresses() +
                              ": it waits for most of the sites that agreed last (collab status names those who are "
                              "missing, collab forget goes on without them)"));
    }
    return fail(unavailable("the coordinator at " + addresses() + ": it has not answered within " +
                            in_seconds(config.join_timeout) +
                            " (COLLAB_JOIN_TIMEOUT); is it running (collab coordinator --listen HOST:PORT), with the "
                            "same key and COLLAB_TRANSPORT? Last: " +
                            up.last_reason));
  }
  if (membership == SitePhase::kDialing && now >= up.answer_by) {
    dial_again("no connection within " + in_seconds(patience()));
  } else if (membership == SitePhase::kDialing && now >= up.dial_at) {
    dial_coordinator();
  } else if (membership == SitePhase::kWaiting && now >= up.answer_by) {
    fail(timed_out("the coordinator at " + addresses() +
                   " let this site in, but named no anchor to start from; restart it"));
  } else if (installation && now >= installation->give_up && join_done) {
    drop_coordinator("the anchor of round " + std::to_string(installation->install.round.value) +
                     " did not come from " + sources_text());
  } else if (installation && now >= installation->give_up) {
    fail(timed_out("the anchor of round " + std::to_string(installation->install.round.value) + " did not come from " +
                   sources_text() + " within " + in_seconds(config.round_timeout) + " (COLLAB_ROUND_TIMEOUT)"));
  } else {
    on_unreachable_tick();
  }
  if (!over()) on_coordinator_silence();
}

void Site::State::on_coordinator_silence() {
  if (!up.link || now < up.next_heartbeat) return;
  // Who has slept cannot tell whether the other was silent.
  const Duration slept = now - up.next_heartbeat;
  if (slept > 2 * up.heartbeat) up.last_heard = std::min(now, up.last_heard + slept);
  up.next_heartbeat = later(now, up.heartbeat);
  // To begin with another one costs little, while this site is not let in.
  const Duration limit = membership == SitePhase::kAsking ? patience() : up.grace;
  if (now - up.last_heard >= limit) {
    const std::uint32_t silent = up.candidate;
    drop_coordinator("silent for longer than " + in_seconds(limit) + (limit == up.grace ? " (COLLAB_LINK_GRACE)" : ""));
    // A dial would be lost like all else that was sent there.
    up.candidate = (silent + 1) % static_cast<std::uint32_t>(config.coordinators.size());
    return;
  }
  if (waits()) send_up(wire::Inquire{join.swarm});
  if (membership != SitePhase::kAsking) send_up(wire::Heartbeat{++up.sequence, false});
}

}  // namespace collab::protocol
