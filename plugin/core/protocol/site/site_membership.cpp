#include "core/protocol/site/site_membership.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/mutants.h"
#include "core/protocol/site/site_parts.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

constexpr Duration kClocksDiffer = std::chrono::minutes(1);  // a site's clock and a coordinator's
constexpr Duration kLeaveAckLimit = std::chrono::seconds(5);
constexpr Duration kDepartLimit = std::chrono::seconds(2);  // to find a coordinator that can be told

// All other kinds that a coordinator may name count as one, because each kind is counted by itself in reports.
std::string known_kind(const std::string& event) {
  constexpr std::array<std::string_view, 9> kKnown{
      kDialOut, kWait, kMinority, kForget, kRefused, "same-data", "state-not-used", "declined", "buffers"};
  return std::ranges::find(kKnown, event) == kKnown.end() ? "notice" : event;
}

Duration milliseconds(std::uint32_t told) { return std::chrono::milliseconds(std::max<std::uint32_t>(1, told)); }

}  // namespace

bool SiteMembership::is_let_in() const {
  return phase_ == SitePhase::kWaiting || phase_ == SitePhase::kInstalling || phase_ == SitePhase::kActive;
}

// ---- in --------------------------------------------------------------------------------------------

void SiteMembership::begin(const Begin& event) {
  if (phase_ != SitePhase::kIdle) {
    return all_->note(Note::Level::kWarning, "ignored", "this site has begun already [join.begun-twice]");
  }
  if (all_->config.coordinators.empty()) {
    return fail(invalid_argument("no coordinator to join: set COLLAB_COORDINATOR=HOST:PORT [join.no-coordinators]"));
  }
  join_ = event.join;
  all_->acceptor.begin(join_.report.record, join_.process);
  may_ask_for(all_->config.join_timeout);
  all_->coordinator.dial();
}

void SiteMembership::may_ask_for(Duration limit) { give_up_ = later(all_->now, limit); }

void SiteMembership::begin_seeking() {
  phase_ = SitePhase::kDialing;
  anchor_by_ = kNever;
}

// Join offers the anchor that the site will hold, so it waits until a commit under way is applied.
void SiteMembership::begin_asking() {
  phase_ = SitePhase::kAsking;
  join_sent_ = false;
  if (!all_->round.is_applying()) send_join();
}

void SiteMembership::applied() {
  if (phase_ == SitePhase::kAsking && !join_sent_) send_join();
}

wire::Report SiteMembership::report() const {
  return {all_->acceptor.record(join_.generation, join_.fingerprint), was_member_,
          join_done_ && all_->round.is_training(), all_->acceptor.is_done()};
}

void SiteMembership::send_join() {
  join_sent_ = true;
  hold_.reset();
  const auto& coordinators = all_->config.coordinators;
  Duration soon = 2 * all_->coordinator.heartbeat();
  // A site that was never let in gives up soon, and must have asked each candidate by then.
  if (!was_member_) soon = std::min(soon, all_->config.join_timeout / (2 * static_cast<int>(coordinators.size())));
  all_->inquiry.begin_asking(soon);
  all_->coordinator.begin_heartbeats();
  join_.report = report();
  all_->coordinator.send(join_);
}

void SiteMembership::resend_join() {
  if (phase_ != SitePhase::kAsking || !join_sent_) return;
  join_.report = report();
  all_->coordinator.send(join_);
}

void SiteMembership::on_refuse(const wire::Refuse& refuse) {
  if (leave_) return leave_done();
  if (refuse.behind) return fail(outdated(refuse.reason));
  if (phase_ != SitePhase::kAsking || !was_member_) return fail(refused(refuse.reason));
  // A member that comes back may be early: its old link was not yet seen to be dead, or its old index is taken.
  all_->note(Note::Level::kWarning, "refused",
             "this site was not let in again yet, and asks once more: " + refuse.reason + " [join.not-again-yet]");
  join_.index = wire::kNoIndex;
  all_->coordinator.drop(refuse.reason);
}

// The coordinator repeats Hold with each heartbeat. If it stops, it now asks this site for promises, and no longer
// answers by itself.
bool SiteMembership::is_held() const {
  return hold_ && (all_->now < later(held_at_, 2 * all_->coordinator.heartbeat()) || mutant(Mutant::kHeldForEver));
}

// The coordinator limits this wait. If it fails to, the site does.
void SiteMembership::on_hold(const wire::Hold& told) {
  if (phase_ != SitePhase::kAsking) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "the coordinator sent Hold to a site that had not asked [join.hold-unasked]");
  }
  if (!hold_) all_->note(Note::Level::kInfo, "waiting", told.reason);
  hold_ = told.reason;
  held_at_ = all_->now;
  if (!std::exchange(was_held_, true)) may_ask_for(2 * all_->config.join_timeout);
}

bool SiteMembership::leaves_for(TermId term) {
  const TermId limit = all_->config.terms.at(later(all_->now, kClocksDiffer));
  if (term <= limit) return false;
  all_->coordinator.drop("it acts under term " + std::to_string(term.value) +
                         ", but by this site's clock no swarm can be beyond term " + std::to_string(limit.value) +
                         ": set the clocks, if they differ by more than " + in_seconds(kClocksDiffer) +
                         " [coordinator.far-term]");
  return true;
}

void SiteMembership::on_prepare(const wire::Prepare& prepare) {
  const TermId followed = all_->acceptor.term();
  if (phase_ != SitePhase::kAsking || !all_->acceptor.may_promise(prepare.term)) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "term " + std::to_string(prepare.term.value) + " was to be promised, this site follows term " +
                          std::to_string(followed.value) + " [coordinator.old-term]");
  }
  if (leaves_for(prepare.term)) return;
  all_->acceptor.promise(prepare.term);
  all_->inquiry.stays_until(later(all_->now, all_->coordinator.answer_limit()));
  wire::Promise promise{prepare.term, join_.offer, report()};
  if (mutant(Mutant::kPromiseBeforeDurable)) all_->coordinator.send(promise);
  all_->writes.send_when_durable(std::move(promise));
}

void SiteMembership::on_accept(const wire::Accept& accept) {
  const wire::Accepted accepted{all_->acceptor.term()};
  if (phase_ != SitePhase::kAsking || !all_->acceptor.may_accept(accept.term)) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "the coordinator asked to accept something under term " + std::to_string(accept.term.value) +
                          ", this site follows term " + std::to_string(accepted.term.value) +
                          " [coordinator.old-accept]");
  }
  if (accept.proposals.empty()) return all_->coordinator.send(accepted);
  if (!is_short(accept.proposals[0].start)) {
    return all_->coordinator.drop("it settles an attempt whose names are longer in total than a site can remember");
  }
  all_->acceptor.settle(accept.proposals[0]);
  if (mutant(Mutant::kAcceptedBeforeDurable)) all_->coordinator.send(accepted);
  all_->writes.send_when_durable(accepted);
}

void SiteMembership::on_notice(const wire::Notice& notice) {
  all_->note(notice.event == kWait ? Note::Level::kInfo : Note::Level::kWarning, known_kind(notice.event), notice.text);
  if (notice.event == kWait && phase_ == SitePhase::kAsking) told_ = notice.text;
}

void SiteMembership::on_welcome(const wire::Welcome& welcome) {
  if (phase_ != SitePhase::kAsking) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "the coordinator sent Welcome to a site that had not asked [join.welcome-unasked]");
  }
  if (self_ && *self_ != welcome.site) {
    all_->round.contribute_anew();
    all_->peers.close_each_link("this site has another number now");
  }
  if (welcome.anew) all_->acceptor.forget_promises();
  const TermId term = all_->acceptor.term();
  if (welcome.term < term && !mutant(Mutant::kWelcomeOfOlderTerm)) {
    return all_->coordinator.drop("it acts under term " + std::to_string(welcome.term.value) +
                                  ", and this site follows term " + std::to_string(term.value));
  }
  if (leaves_for(welcome.term)) return;
  if (term != welcome.term) {
    all_->roster.forget_members();
    if (was_member_) {
      all_->note(
          Note::Level::kInfo, "coordinator",
          all_->coordinator.address() + " is the coordinator now, under term " + std::to_string(welcome.term.value));
    }
  }
  all_->acceptor.follow(welcome.term);
  self_ = welcome.site;
  was_member_ = true;
  all_->coordinator.welcomed(milliseconds(welcome.heartbeat_ms), milliseconds(welcome.grace_ms));
  const Duration limit = all_->config.join_timeout + kRoundLimits * all_->config.round_timeout;
  anchor_by_ = join_done_ ? kNever : later(all_->now, limit);
  phase_ = SitePhase::kWaiting;
  told_.clear();
  if (leave_) return send_leave();
  all_->round.send_ready();
}

void SiteMembership::begin_waiting() { phase_ = SitePhase::kWaiting; }
void SiteMembership::becomes_active() { phase_ = SitePhase::kActive; }

void SiteMembership::begin_installing() {
  phase_ = SitePhase::kInstalling;
  anchor_by_ = kNever;
  all_->inquiry.forget_here();
}

void SiteMembership::installed(const wire::InstallAnchor& install) {
  join_.index = self_->value;  // to be asked for again, if the site has to come back
  all_->round.follow(install.period);
  if (join_done_) return;
  join_done_ = true;
  all_->out.emplace_back(JoinDone{*self_, install.run, install.round, all_->round.period()});
}

// A site that was let in may ask for as long again, but only once before it first trains.
void SiteMembership::coordinator_lost() {
  if (phase_ == SitePhase::kActive || !std::exchange(asks_again_, true)) may_ask_for(all_->config.join_timeout);
  if (phase_ != SitePhase::kActive) return;
  join_.expected_sites = static_cast<std::uint32_t>(all_->roster.size());  // for a coordinator that knows nothing
}

// ---- out -------------------------------------------------------------------------------------------

void SiteMembership::depart(const Depart& event) {
  if (leave_) return;
  all_->round.back_to_ready("this site leaves");
  leave_ = wire::Leave{event.reason, event.next_generation};
  if (!is_outside() && all_->coordinator.is_up()) return send_leave();
  // The others must go on without us in good order. So a coordinator that was just lost gets a moment to come back.
  leave_by_ = later(all_->now, kDepartLimit);
  if (!join_done_) leave_done();
}

// The others will count this site by name. So its acceptor must be dead before they do.
void SiteMembership::send_leave() {
  all_->installation.drop();
  if (!mutant(Mutant::kAcceptorAfterLeave)) all_->acceptor.renounce();
  if (mutant(Mutant::kLeaveBeforeDurable)) all_->coordinator.send(*leave_);
  all_->writes.send_when_durable(*leave_);
  phase_ = SitePhase::kLeaving;
  leave_by_ = later(all_->now, kLeaveAckLimit);
}

void SiteMembership::on_leave_ack() {
  if (phase_ == SitePhase::kLeaving) leave_done();
}

void SiteMembership::on_leave_tick() {
  if (leave_ && all_->now >= leave_by_) leave_done();
}

void SiteMembership::end(const std::string& why) {
  all_->coordinator.end(why);
  all_->inquiry.close_link(why);
  all_->peers.end(why);
}

void SiteMembership::fail(Status why) {
  all_->round.back_to_ready(why.message());
  end(why.message());
  phase_ = SitePhase::kFailed;
  all_->out.emplace_back(Failed{std::move(why)});
}

void SiteMembership::leave_done() {
  end("this site has left");
  phase_ = SitePhase::kLeft;
  all_->out.emplace_back(Left{});
}

// ---- time ------------------------------------------------------------------------------------------

TimePoint SiteMembership::next_deadline() const {
  return std::min({leave_by_, anchor_by_, is_outside() && !join_done_ ? give_up_ : kNever});
}

void SiteMembership::on_ask_tick() {
  if (is_outside() && !join_done_ && all_->now >= give_up_) fail(unavailable(not_let_in_text()));
}

std::string SiteMembership::not_let_in_text() const {
  const std::string limit = in_seconds(all_->config.join_timeout) + " (COLLAB_JOIN_TIMEOUT)";
  const std::string addresses = all_->coordinator.addresses();
  if (!told_.empty()) {
    return "this site was not let in within " + limit + " by the coordinator at " + addresses + ", which is " + told_ +
           " [join.not-let-in]";
  }
  if (all_->inquiry.here()) {
    return "this site was not let in within " + limit + " by the coordinator at " + addresses +
           ": the coordinator is waiting for most of the sites that agreed last (collab status names the missing "
           "sites, collab "
           "forget goes on without them) [join.majority-missing]";
  }
  return "the coordinator at " + addresses + ": it has not answered within " + limit +
         "; is it running (collab coordinator --listen HOST:PORT), with the "
         "same token and COLLAB_TRANSPORT? Last: " +
         all_->coordinator.last_reason() + " [join.coordinator-silent]";
}

void SiteMembership::on_wait_tick() {
  if (phase_ != SitePhase::kWaiting || all_->now < anchor_by_) return;
  fail(timed_out("the coordinator at " + all_->coordinator.addresses() +
                 " let this site in, but named no anchor to start from; restart this site [join.no-anchor]"));
}

std::string SiteMembership::waiting_text(TimePoint at) const {
  const CoordinatorLink& coordinator = all_->coordinator;
  switch (phase_) {
    case SitePhase::kIdle: return "this site has not begun";
    case SitePhase::kDialing:
      return "waiting for the coordinator at " + coordinator.addresses() + " (last: " + coordinator.last_reason() + ")";
    case SitePhase::kAsking:
      if (is_held()) return *hold_;
      return told_.empty() ? "waiting to be let in by the coordinator at " + coordinator.addresses() : told_;
    case SitePhase::kWaiting: {
      std::vector<std::string> names;
      for (const auto& [site, member] : all_->roster.members()) names.push_back(member.name);
      const bool missed = !join_.init_from.empty() && std::ranges::find(names, join_.init_from) == names.end();
      return "waiting for the swarm to begin (for COLLAB_MIN_SITES sites" +
             (missed ? " and for " + join_.init_from + ", COLLAB_INIT_FROM" : std::string()) +
             ", unless it has begun before); here: " + join_words(names);
    }
    case SitePhase::kInstalling: return all_->installation.waiting_text(at);
    case SitePhase::kActive: return all_->round.waiting_text(at);
    case SitePhase::kLeaving: return "waiting for the coordinator to acknowledge that this site leaves";
    case SitePhase::kLeft: return "this site has left";
    case SitePhase::kFailed: return "this site has failed";
  }
  return {};
}

}  // namespace collab::protocol
