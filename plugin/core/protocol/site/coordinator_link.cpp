#include "core/protocol/site/coordinator_link.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/site/site_parts.h"

namespace collab::protocol {
namespace {

// The limit is a quarter of the grace, within these bounds. All sites stay longest at the first candidate that they can
// reach, so at any time most of them are there together.
constexpr Duration kMostAnswerLimit = std::chrono::seconds(15);
// A coordinator's times are used only within the range of its knobs. A grace far longer than this site's own is cut,
// because the site's waits depend on it.
constexpr Duration kLeastHeartbeat = std::chrono::milliseconds(10);
constexpr Duration kMostHeartbeat = std::chrono::seconds(60);
constexpr Duration kLongGrace = std::chrono::minutes(10);

}  // namespace

const std::string& CoordinatorLink::address() const { return all_->config.coordinators[candidate_]; }
std::string CoordinatorLink::addresses() const { return join_words(all_->config.coordinators); }

// A site that was never let in gives up soon, and must have tried each candidate by then.
Duration CoordinatorLink::answer_limit() const {
  const Duration usual = std::max(std::clamp(grace_ / 4, kLeastAnswerLimit, kMostAnswerLimit), 3 * heartbeat_);
  if (all_->membership.was_member()) return usual;
  return std::min(usual, all_->config.join_timeout / (2 * static_cast<int>(all_->config.coordinators.size())));
}

TimePoint CoordinatorLink::given_up_at() const { return later(lost_at_, grace_); }
bool CoordinatorLink::given_up() const { return lost_at_ != kNever && all_->now >= given_up_at(); }

TimePoint CoordinatorLink::next_deadline() const { return std::min({answer_by_, dial_at_, next_heartbeat_}); }

void CoordinatorLink::send(wire::Message message) {
  if (link_) all_->out.emplace_back(Send{*link_, std::move(message)});
}

// ---- finding a coordinator -------------------------------------------------------------------------

void CoordinatorLink::dial() {
  all_->membership.begin_seeking();
  dial_out_ = true;
  dial_at_ = kNever;
  answer_by_ = later(all_->now, answer_limit());
  all_->out.emplace_back(DialCoordinator{candidate_});
}

void CoordinatorLink::dial_again(const std::string& reason) {
  all_->membership.begin_seeking();
  last_reason_ = address() + ": " + reason;
  candidate_ = static_cast<std::uint32_t>((candidate_ + 1) % all_->config.coordinators.size());
  dial_out_ = false;
  dial_at_ = later(all_->now, candidate_ == 0 ? backoff_ : kFirstBackoff);
  answer_by_ = kNever;
  if (candidate_ == 0) backoff_ = std::min(2 * backoff_, kLastBackoff);  // no candidate in the list has answered
}

void CoordinatorLink::go_to(std::uint32_t candidate) {
  candidate_ = candidate;
  dial_at_ = all_->now;
}

void CoordinatorLink::on_connected(const CoordinatorConnected& event) {
  if (all_->membership.phase() != SitePhase::kDialing) {
    all_->out.emplace_back(CloseLink{event.link, "another link to the coordinator is in use"});
    return;
  }
  link_ = event.link;
  candidate_ = event.candidate.value_or(candidate_);  // a candidate that was given up may answer first
  dial_out_ = false;
  dial_at_ = kNever;
  last_heard_ = all_->now;
  answer_by_ = kNever;
  all_->membership.begin_asking();
}

// A wrong token stays wrong. A member may be refused for many reasons, so it tries on.
bool CoordinatorLink::is_final(const Status& why) const {
  return why.code() == StatusCode::kRefused && !all_->membership.was_member();
}

void CoordinatorLink::on_dial_failed(const DialFailed& event) {
  if (event.candidate.value_or(candidate_) != candidate_) return;  // another candidate is dialled by now
  if (all_->membership.phase() != SitePhase::kDialing || !dial_out_) return;
  if (is_final(event.why)) return all_->membership.fail(event.why);
  dial_again(event.why.message());
}

void CoordinatorLink::on_dial_tick() {
  if (all_->membership.phase() != SitePhase::kDialing) return;
  if (all_->now >= answer_by_) {
    dial_again("no connection within " + in_seconds(answer_limit()));
  } else if (all_->now >= dial_at_) {
    dial();
  }
}

// ---- being heard by a coordinator ------------------------------------------------------------------

void CoordinatorLink::heard() { last_heard_ = all_->now; }
void CoordinatorLink::begin_heartbeats() { next_heartbeat_ = later(all_->now, heartbeat_); }

void CoordinatorLink::welcomed(Duration heartbeat, Duration grace) {
  heartbeat_ = std::clamp(heartbeat, kLeastHeartbeat, kMostHeartbeat);
  grace_ = std::clamp(grace, 2 * heartbeat_, std::max({kLongGrace, 4 * all_->config.link_grace, 2 * heartbeat_}));
  if (heartbeat_ != heartbeat || grace_ != grace) {
    all_->note(Note::Level::kWarning, "coordinator",
               "the coordinator at " + address() + " announces a heartbeat of " + in_seconds(heartbeat) +
                   " and a grace of " + in_seconds(grace) + ", but this site uses " + in_seconds(heartbeat_) + " and " +
                   in_seconds(grace_) + ": set the same COLLAB_LINK_GRACE everywhere [coordinator.times]");
  }
  begin_heartbeats();
  lost_at_ = kNever;
}

void CoordinatorLink::on_silence_tick() {
  if (!link_ || all_->now < next_heartbeat_) return;
  // A site that has slept cannot tell whether the other side was silent.
  const Duration slept = all_->now - next_heartbeat_;
  if (slept > 2 * heartbeat_) last_heard_ = std::min(all_->now, last_heard_ + slept);
  begin_heartbeats();
  // Until this site is let in, changing to another candidate costs little.
  const bool asks = all_->membership.phase() == SitePhase::kAsking;
  const Duration limit = asks ? answer_limit() : grace_;
  if (all_->now - last_heard_ >= limit) {
    // Another dial there would be lost, like all else that was sent.
    return turn_from("silent for longer than " + in_seconds(limit) + (limit == grace_ ? " (COLLAB_LINK_GRACE)" : ""));
  }
  if (all_->inquiry.asks_here()) send(wire::Inquire{all_->membership.join().swarm});
  if (!asks) send(wire::Heartbeat{++sequence_, false});
}

// ---- losing the coordinator ------------------------------------------------------------------------

void CoordinatorLink::on_closed(const Status& why) {
  link_.reset();
  if (all_->membership.phase() == SitePhase::kAsking && is_final(why)) return all_->membership.fail(why);
  lose(why.ok() ? "the link was closed" : why.message());
}

void CoordinatorLink::drop(const std::string& reason) {
  all_->out.emplace_back(CloseLink{*link_, reason});
  link_.reset();
  lose(reason);
}

void CoordinatorLink::turn_from(const std::string& reason) {
  const std::uint32_t left = candidate_;
  drop(reason);
  candidate_ = (left + 1) % static_cast<std::uint32_t>(all_->config.coordinators.size());
}

// The head of coordinator_link.h says what follows. Work under way with this coordinator is given up; the next one that
// answers is asked for it again.
void CoordinatorLink::lose(const std::string& reason) {
  next_heartbeat_ = kNever;
  if (all_->membership.phase() == SitePhase::kLeaving) return all_->membership.leave_done();
  if (lost_at_ == kNever) lost_at_ = all_->now;
  if (all_->membership.phase() == SitePhase::kAsking) return dial_again(reason);
  all_->membership.coordinator_lost();
  all_->note(
      Note::Level::kWarning, "coordinator",
      "the coordinator at " + address() + " is lost: " + reason + "; this site looks for one again [coordinator.lost]");
  all_->round.coordinator_lost();
  all_->installation.drop();
  dial_again(reason);
  candidate_ = 0;  // all sites look for the first in their list that answers
}

void CoordinatorLink::end(const std::string& why) {
  if (link_) all_->out.emplace_back(CloseLink{*link_, why});
  link_.reset();
}

}  // namespace collab::protocol
