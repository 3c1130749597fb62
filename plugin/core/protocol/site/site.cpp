// The site's dispatch: which sub-protocol answers which event. The drawing is in site_state.h.
#include "core/protocol/site/site.h"

#include <algorithm>
#include <type_traits>

#include "core/base/text.h"
#include "core/protocol/mutants.h"
#include "core/protocol/site/site_state.h"
#include "core/wire/encoding.h"

namespace collab::protocol {

Site::Site(SiteConfig config) : state_(std::make_unique<State>(std::move(config))) {}
Site::~Site() = default;
Site::Site(Site&&) noexcept = default;
Site& Site::operator=(Site&&) noexcept = default;
Site::Site(const Site& other) : state_(std::make_unique<State>(*other.state_)) {}
Site& Site::operator=(const Site& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}

std::vector<SiteAction> Site::step(TimePoint now, const SiteEvent& event) {
  State& s = *state_;
  s.now = now;
  s.out.clear();
  if (s.over()) return {};
  std::visit([&](const auto& what) { s.on_event(what); }, event);
  return std::move(s.out);
}

TimePoint Site::next_deadline() const { return state_->next_deadline(); }
wire::Record Site::record() const { return state_->record(); }
std::string Site::waiting_for(TimePoint now) const { return state_->waiting_for(now); }

bool Site::knows(LinkId link) const { return state_->peers.contains(link); }

std::optional<SiteId> Site::peer_of(LinkId link) const {
  const auto found = state_->peers.find(link);
  if (found == state_->peers.end() || found->second.state < PeerState::kAnswered) return std::nullopt;
  return found->second.site;
}

std::string Site::State::name_of(SiteId site) const {
  if (site == self) return join.site;
  const auto member = roster.find(site);
  return member == roster.end() ? "site " + std::to_string(site.value) : member->second.name;
}

// ---- events from the training process ------------------------------------------------------------

void Site::State::on_event(const Begin& event) {
  if (membership != SitePhase::kIdle) return note(Note::Level::kWarning, "ignored", "this site has begun already");
  if (config.coordinators.empty()) {
    return fail(invalid_argument("no coordinator to join: set COLLAB_COORDINATOR=HOST:PORT"));
  }
  join = event.join;
  const wire::Record& known = join.report.record;
  acceptor = known.acceptor;
  if (!mutant(Mutant::kTermForgottenAtStart)) term = known.promised;
  agreed = known.anchor;
  voters = known.voters;
  recent = known.recent;
  for (const wire::Proposal& proposal : known.proposals) {
    if (!mutant(Mutant::kProposalsForgottenAtStart)) (proposal.settled.value != 0 ? settled : attempted) = proposal;
  }
  up.give_up = later(now, config.join_timeout);
  dial_coordinator();
}

void Site::State::on_event(const Trigger& event) {
  if (round.phase != RoundPhase::kTraining) {
    return note(Note::Level::kWarning, "ignored", "a trigger came while a round is under way");
  }
  round = RoundState{};
  round.phase = kept_done() ? RoundPhase::kDone : RoundPhase::kReady;
  if (kept_done()) round.start = attempted->start;
  round.trigger = event;
  round.since = now;
  if (owed_base) out.emplace_back(Rebase{*std::exchange(owed_base, std::nullopt)});
  if (owed) return apply(*std::exchange(owed, std::nullopt));
  if (coordinator_given_up()) return skip("no coordinator at " + addresses() + " (last: " + up.last_reason + ")");
  send_ready();
}

void Site::State::on_event(const Depart& event) {
  if (leave_ack) return;
  back_to_ready("this site leaves");
  leave_ack = wire::Leave{event.reason, event.next_generation};
  const bool outside = membership == SitePhase::kDialing || membership == SitePhase::kAsking;
  if (!outside && up.link) return ack_leave();
  // The others are to go on without us in good order, so a coordinator that was just lost gets a moment.
  leave_by = later(now, kDepartLimit);
  if (!join_done) leave_done();
}

// The others go on counting this site's name. So the memory that its name stands for must be dead before they may.
void Site::State::ack_leave() {
  if (!mutant(Mutant::kAcceptorAfterLeave)) acceptor = AcceptorId{acceptor.value + 1};
  if (mutant(Mutant::kLeaveBeforeDurable)) send_up(*leave_ack);
  say_when_durable(*leave_ack);
  membership = SitePhase::kLeaving;
  leave_by = later(now, kLeaveAckLimit);
}

// ---- events from links ---------------------------------------------------------------------------

void Site::State::on_event(const CoordinatorConnected& event) {
  if (event.inquiry) {
    if (!up.inquiry.of || event.candidate.value_or(*up.inquiry.of) != *up.inquiry.of)
      return static_cast<void>(out.emplace_back(Hangup{event.link, "nothing is to be asked any more"}));
    up.inquiry.link = event.link;
    return static_cast<void>(out.emplace_back(Send{event.link, wire::Inquire{join.swarm}}));
  }
  if (membership != SitePhase::kDialing) {
    out.emplace_back(Hangup{event.link, "another link to the coordinator is in use"});
    return;
  }
  up.link = event.link;
  up.candidate = event.candidate.value_or(up.candidate);  // one that was given up may answer first
  up.dial_out = false;
  up.dial_at = kNever;
  up.join_sent = false;
  up.last_heard = now;
  up.answer_by = kNever;
  membership = SitePhase::kAsking;
  // What is offered is what will be held: a commit being applied is waited for.
  if (round.phase != RoundPhase::kApplying) send_join();
}

void Site::State::on_event(const PeerConnected& event) {
  PeerDial& dial = peer_dials[event.site];
  dial.dial_out = false;
  dial.at = later(now, dial.backoff);
  dial.backoff = std::min(2 * dial.backoff, kLastBackoff);
  if (!self || roster.count(event.site) == 0) {
    peer_dials.erase(event.site);
    out.emplace_back(Hangup{event.link, "site " + std::to_string(event.site.value) + " is no member any more"});
    return;
  }
  if (linked(event.site)) {  // it has dialled us meanwhile, and the exchange may be under way over that link
    out.emplace_back(Hangup{event.link, "there is a link with " + name_of(event.site) + " by now"});
    return;
  }
  const std::string& address = roster.at(event.site).address;
  peers[event.link] = PeerLink{PeerState::kGreeting, event.site, name_of(event.site), address, {}, true, now};
  greet(event.link);
}

// A wrong key does not become right by trying again. For a member much may have been the reason: it tries on.
bool Site::State::is_final(const Status& why) const { return why.code() == StatusCode::kRefused && !was_member; }

void Site::State::on_event(const DialFailed& event) {
  if (event.inquiry) {
    if (!event.candidate || event.candidate == up.inquiry.of) end_inquiry(event.why.message());
    return;
  }
  if (!event.site) {
    if (event.candidate.value_or(up.candidate) != up.candidate) return;  // another one is dialled by now
    if (membership != SitePhase::kDialing || !up.dial_out) return;
    if (is_final(event.why)) return fail(event.why);
    return dial_again(event.why.message());
  }
  const auto found = peer_dials.find(*event.site);
  if (found == peer_dials.end()) return;
  PeerDial& dial = found->second;
  dial.dial_out = false;
  dial.at = later(now, dial.backoff);
  dial.backoff = std::min(2 * dial.backoff, kLastBackoff);
  dial.last_reason = event.why.message();
}

void Site::State::on_event(const Received& event) {
  if (up.link && event.link == *up.link) return from_coordinator(event.message);
  if (const auto* leads = std::get_if<wire::Leads>(&event.message); leads != nullptr && event.link == up.inquiry.link) {
    return on_leads(*leads);
  }
  from_peer(event.link, event.message);
}

void Site::State::on_event(const Closed& event) {
  const std::string why = event.why.ok() ? "the link was closed" : event.why.message();
  if (up.link && event.link == *up.link) {
    up.link.reset();
    if (membership == SitePhase::kAsking && is_final(event.why)) return fail(event.why);
    return lose_coordinator(why);
  }
  if (event.link == up.inquiry.link) {
    up.inquiry.link.reset();
    return end_inquiry(why);
  }
  forget_peer(event.link, why);
}

void Site::State::from_coordinator(const wire::Message& message) {
  up.last_heard = now;
  std::visit(
      [&](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, wire::Welcome>) {
          on_welcome(m);
        } else if constexpr (std::is_same_v<T, wire::Refuse>) {
          on_refuse(m);
        } else if constexpr (std::is_same_v<T, wire::Hold>) {
          on_hold(m);
        } else if constexpr (std::is_same_v<T, wire::Roster>) {
          on_roster(m);
        } else if constexpr (std::is_same_v<T, wire::Keys>) {
          on_keys(m);
        } else if constexpr (std::is_same_v<T, wire::InstallAnchor>) {
          on_install_anchor(m);
        } else if constexpr (std::is_same_v<T, wire::StartAttempt>) {
          on_start_attempt(m);
        } else if constexpr (std::is_same_v<T, wire::Commit>) {
          on_commit(m);
        } else if constexpr (std::is_same_v<T, wire::RoundSkipped>) {
          on_round_skipped(m);
        } else if constexpr (std::is_same_v<T, wire::Prepare>) {
          on_prepare(m);
        } else if constexpr (std::is_same_v<T, wire::Accept>) {
          on_accept(m);
        } else if constexpr (std::is_same_v<T, wire::Notice>) {
          note(m.event == kWait ? Note::Level::kInfo : Note::Level::kWarning, m.event, m.text);
          if (m.event == kWait && membership == SitePhase::kAsking) up.told = m.text;
          dials_out = dials_out || m.event == kDialOut;
          dial_everyone();
        } else if constexpr (std::is_same_v<T, wire::MemberLeft>) {
          if ((m.term < term && !mutant(Mutant::kMemberLeftOfOlderTerm)) || mutant(Mutant::kMemberLeftIgnored)) return;
          member_left.insert(m.acceptor);
          take_voters(std::move(voters));
          keep_record();
        } else if constexpr (std::is_same_v<T, wire::LeaveAck>) {
          if (membership == SitePhase::kLeaving) leave_done();
        } else if constexpr (std::is_same_v<T, wire::Leads>) {
          up.here = m;
        } else if constexpr (std::is_same_v<T, wire::Heartbeat>) {
          // That it came is all that matters.
        } else {
          note(Note::Level::kWarning, "ignored",
               "the coordinator sent " + std::string(wire::name_of(message)) + ", which it never sends a site");
        }
      },
      message);
}

// ---- events from the data plane ------------------------------------------------------------------

void Site::State::on_event(const ExchangeComplete& event) {
  if (round.phase != RoundPhase::kExchanging || !in_attempt(event.round, event.attempt)) return;
  round.phase = RoundPhase::kDone;
  attempted->accepted = holds_mean = true;
  attempted->slices = event.slices;
  // All who contribute have begun this attempt, so no earlier one can be committed any more.
  if (!contributes()) pending.reset();
  if (mutant(Mutant::kDoneBeforeDurable)) send_up(wire::Done{term, event.round, event.attempt, event.slices});
  say_when_durable(wire::Done{term, event.round, event.attempt, event.slices});
}

void Site::State::on_event(const ContributionUnfit& event) {
  if (round.phase != RoundPhase::kExchanging || !in_attempt(event.round, event.attempt)) return;
  round.declined = true;
  pending.reset();
  note(Note::Level::kError, "declined",
       "this site's delta is left out of round " + std::to_string(event.round.value) +
           " and the swarm's anchor is taken instead: " + event.reason);
  send_up(wire::Decline{event.round, event.attempt, event.reason});
  back_to_ready("our delta is unfit");
}

void Site::State::on_event(const ExchangeFailed& event) {
  if (round.phase != RoundPhase::kExchanging || !in_attempt(event.round, event.attempt)) return;
  // Of what goes over a link that is made anew nothing counts as delivered. Who was lost and is back has a new one.
  const auto& in = round.start->participants;
  const bool lost = std::any_of(in.begin(), in.end(), [&](const auto& p) { return p.site == event.peer && !p.here; });
  if (linked(event.peer) && !lost) hang_up_peer(link_of.at(event.peer), event.reason);
  if (round.phase == RoundPhase::kExchanging) report_unreachable(event.peer, event.reason);  // not with the link
}

void Site::State::on_event(const AnchorInPlace& event) { on_anchor_in_place(event); }

void Site::State::on_event(const AnchorSourceWrong& event) {
  if (!installation || installation->keeps) return;
  const std::string name = name_of(event.site);
  out.emplace_back(
      make_note(Note::Level::kError, "repair",
                "the anchor of round " + std::to_string(installation->install.round.value) + " is not taken from " +
                    name + ": " + event.reason,
                {{"who", json_quote(name)}, {"round", std::to_string(installation->install.round.value)}}));
  installation->here = event.here;
  give_up_source(event.site);
}

void Site::State::on_event(const Applied& event) {
  on_applied(event);
  if (membership == SitePhase::kAsking && !up.join_sent) send_join();
}

// ---- time ----------------------------------------------------------------------------------------

void Site::State::on_event(const Tick&) {
  if (leave_ack && now >= leave_by) return leave_done();
  if (membership == SitePhase::kLeaving) return;
  on_join_tick();
  if (over()) return;
  on_peers_tick();
  if (over()) return;
  on_optimizer_tick();
  on_write_tick();
  inquire();
  on_round_tick();
}

TimePoint Site::State::next_deadline() const {
  if (over() || membership == SitePhase::kIdle) return kNever;
  if (membership == SitePhase::kLeaving) return leave_by;
  TimePoint next = std::min({up.answer_by, up.next_heartbeat, leave_by, later(writes.since, up.grace)});
  if (inquires()) next = std::min(next, up.inquiry.next);
  if (membership == SitePhase::kDialing || membership == SitePhase::kAsking) {
    next = std::min({next, up.dial_at, join_done ? kNever : up.give_up});
  }
  if (installation) next = std::min({next, installation->give_up, unreachable_until()});
  if (optimizer_fetch.phase != FetchPhase::kNone && optimizer_fetch.phase != FetchPhase::kOffered)
    next = std::min({next, optimizer_fetch.until, optimizer_fetch.give_up});
  for (const auto& [site, dial] : peer_dials) {
    if (!linked(site)) next = std::min(next, dial.at);
  }
  for (const auto& [link, peer] : peers) {
    if (peer.state != PeerState::kUsable) next = std::min(next, later(peer.since, kHelloLimit));
  }
  if (round.phase == RoundPhase::kLinking) {
    next = std::min({next, round.link_by, now < round.both_dial ? round.both_dial : kNever});
  }
  if (at_trigger()) {
    next = std::min(next, gives_up_at());
    if (lost_at != kNever) next = std::min(next, later(lost_at, up.grace));
  }
  return next;
}

// ---- the end -------------------------------------------------------------------------------------

void Site::State::hang_up_everywhere(const std::string& why) {
  if (up.link) out.emplace_back(Hangup{*up.link, why});
  if (up.inquiry.link) out.emplace_back(Hangup{*up.inquiry.link, why});
  for (const auto& [link, peer] : peers) out.emplace_back(Hangup{link, why});
  up.link.reset();
  peers.clear();
  link_of.clear();
}

void Site::State::fail(Status why) {
  back_to_ready(why.message());
  hang_up_everywhere(why.message());
  membership = SitePhase::kFailed;
  out.emplace_back(Failed{std::move(why)});
}

void Site::State::leave_done() {
  hang_up_everywhere("this site has left");
  membership = SitePhase::kLeft;
  out.emplace_back(Left{});
}

std::string Site::State::waiting_for(TimePoint at) const {
  const std::string number = "round " + std::to_string(anchor ? anchor->round.value + 1 : 0);
  switch (membership) {
    case SitePhase::kIdle: return "this site has not begun";
    case SitePhase::kDialing:
      return "waiting for the coordinator at " + addresses() + " (last: " + up.last_reason + ")";
    case SitePhase::kAsking:
      if (hold) return *hold;
      return up.told.empty() ? "waiting to be let in by the coordinator at " + addresses() : up.told;
    case SitePhase::kWaiting: {
      std::vector<std::string> names;
      for (const auto& [site, member] : roster) names.push_back(member.name);
      const bool missed = !join.init_from.empty() && std::ranges::find(names, join.init_from) == names.end();
      return "waiting for the swarm to begin (for COLLAB_SITE_COUNT sites" +
             (missed ? " and for " + join.init_from + ", COLLAB_INIT_FROM" : std::string()) +
             ", unless it has begun before); here: " + join_words(names);
    }
    case SitePhase::kInstalling:
      return "waiting for the anchor of round " + std::to_string(installation->install.round.value) + " from " +
             sources_text() + unreachable_text(at);
    case SitePhase::kLeaving: return "waiting for the coordinator's farewell";
    case SitePhase::kLeft: return "this site has left";
    case SitePhase::kFailed: return "this site has failed";
    case SitePhase::kActive: break;
  }
  std::vector<std::string> others;
  for (const auto& [site, member] : roster) {
    const bool open = round.phase == RoundPhase::kLinking && (!exchanges_with(site) || linked(site));
    if (site != self && !open) others.push_back(member.name);
  }
  const std::string whom = others.empty() ? "the coordinator" : join_words(others);
  const char* are = others.size() < 2 ? " is" : " are";
  const std::string since = " (" + in_seconds(round.since == kNever ? Duration{0} : at - round.since) + ")";
  switch (round.phase) {
    case RoundPhase::kTraining:
      return optimizer_fetch.phase == FetchPhase::kNone
                 ? "waiting for nothing"
                 : "waiting for the optimizer's state from " + name_of(optimizer_fetch.from);
    case RoundPhase::kReady: return number + ": waiting until " + whom + are + " ready too" + since;
    case RoundPhase::kLinking: return number + ": waiting for a link to " + whom + since;
    case RoundPhase::kExchanging: return number + ": exchanging with " + whom + since;
    case RoundPhase::kDone: return number + ": waiting for the commit, once " + whom + are + " done too" + since;
    case RoundPhase::kApplying: return number + ": applying the outer step" + since;
  }
  return {};
}

}  // namespace collab::protocol
