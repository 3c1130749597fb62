#include "core/protocol/collectives/client_link.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/client_parts.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(200);
constexpr Duration kLongestRetry = std::chrono::seconds(5);
constexpr int kQuickLosses = 4;  // losses within a grace after Entered, before the pause grows
constexpr int kDialsEach = 2;    // failed dials, before the next candidate

}  // namespace

ClientLink::ClientLink(HubClientParts& all)
    : all_(all), heartbeat_(all.config.heartbeat), grace_(all.config.link_grace) {}

Status ClientLink::why_over() const {
  if (!broken_.ok() || phase_ != Phase::kLeft) return broken_;
  return cancelled("this rank has left its world's collectives [hub.left-during-step]");
}

const std::string& ClientLink::address() const { return all_.config.hubs[candidate_]; }

TimePoint ClientLink::next_deadline() const {
  return std::min({next_beat_, retry_at_, silent_at(), is_at_hub() ? kNever : give_up_});
}

void ClientLink::begin() {
  if (phase_ != Phase::kNotBegun) return;
  give_up_ = later(all_.now, all_.config.join_timeout);
  dial();
}

void ClientLink::dial() {
  phase_ = Phase::kDialing;
  retry_at_ = kNever;
  all_.out.emplace_back(DialHub{candidate_});
}

void ClientLink::on_connected(LinkId link) {
  if (phase_ != Phase::kDialing) {
    all_.out.emplace_back(CloseLink{link, "no longer wanted"});
    return;
  }
  link_ = link;
  heard_ = all_.now;
  next_beat_ = later(all_.now, heartbeat_);
  enter();
}

void ClientLink::on_dial_failed(const Status& why) {
  if (phase_ != Phase::kDialing) return;
  is_final(why) ? fail_permanently(why) : lose(why.message(), true);
}

void ClientLink::on_closed(const Status& why) {
  if (phase_ == Phase::kLeft) return;
  is_final(why) ? fail_permanently(why) : lose(why.ok() ? "it was closed" : why.message(), false);
}

// A wrong token does not become right if it is tried again.
bool ClientLink::is_final(const Status& why) const { return why.code() == StatusCode::kRefused && !entered_once_; }

void ClientLink::heard() { heard_ = all_.now; }

void ClientLink::enter() {
  phase_ = Phase::kEntering;
  wire::Enter message = all_.config.self;
  message.candidates = static_cast<std::uint32_t>(all_.config.hubs.size());
  message.returning = entered_once_;
  all_.acceptor.remember(message);
  all_.groups.remember(message);
  all_.send(std::move(message));
}

void ClientLink::on_entered(const wire::Entered& message) {
  phase_ = Phase::kIn;
  entered_at_ = all_.now;
  give_up_ = kNever;
  failed_dials_ = 0;
  minority_.clear();
  heartbeat_ = std::chrono::milliseconds(std::max(message.heartbeat_ms, 1U));
  grace_ = std::chrono::milliseconds(std::max(message.grace_ms, 1U));
  next_beat_ = later(all_.now, heartbeat_);
  if (!std::exchange(entered_once_, true)) all_.out.emplace_back(HubEntered{});
}

// Too few ranks are at this hub: the others may be at another hub.
void ClientLink::on_notice(const wire::Notice& message) {
  if (message.event != kMinority) return;
  minority_ = message.text;
  all_.out.emplace_back(CloseLink{link_, minority_});
  phase_ = Phase::kEntering;
  failed_dials_ = kDialsEach - 1;
  lose("the coordinator at " + address() + " says: " + minority_, true);
}

// `unanswered`: no hub answered the dial. Otherwise the other ranks still use the hub that was lost.
void ClientLink::lose(const std::string& why, bool unanswered) {
  last_problem_ = why;
  const bool soon = is_in() && all_.now < later(entered_at_, grace_);
  if (is_in()) quick_losses_ = soon ? quick_losses_ + 1 : 0;
  if (is_in()) {
    all_.out.emplace_back(make_note(Note::Level::kWarning, "hub",
                                    "the link to the coordinator at " + address() + " is lost: " + why +
                                        "; this rank dials it again [hub.link-lost]"));
    failed_dials_ = 0;
  } else if (unanswered && ++failed_dials_ >= kDialsEach) {
    failed_dials_ = 0;
    candidate_ = (candidate_ + 1) % static_cast<std::uint32_t>(all_.config.hubs.size());
  }
  if (give_up_ == kNever) give_up_ = later(all_.now, hub_search_limit());
  phase_ = Phase::kWaiting;
  link_ = {};
  next_beat_ = kNever;
  retry_at_ = later(all_.now, soon ? pause() : kRetry);
}

// If a hub lets this rank in and is lost again each time, the pause between dials grows.
Duration ClientLink::pause() const {
  const Duration longest = std::max(kRetry, std::min(kLongestRetry, grace_ / 8));
  Duration pause = kRetry;
  for (int i = kQuickLosses; i < quick_losses_ && pause < longest; ++i) pause *= 2;
  return std::min(pause, longest);
}

void ClientLink::close_link(const std::string& why) {
  if (link_.value != 0) all_.out.emplace_back(CloseLink{link_, why});
  lose(why, is_entering());
}

void ClientLink::fail_permanently(const Status& why) {
  if (!broken_.ok()) return;
  broken_ = why;
  end(why.message(), why);
  all_.out.emplace_back(HubBroken{why});
}

void ClientLink::leave(const std::string& reason) {
  if (phase_ == Phase::kLeft) return;
  if (is_at_hub()) all_.send(wire::Leave{reason});
  end(reason, cancelled("this rank has left its world's collectives [hub.left]"));
}

void ClientLink::end(const std::string& reason, const Status& why) {
  if (link_.value != 0) all_.out.emplace_back(CloseLink{link_, reason});
  link_ = {};
  phase_ = Phase::kLeft;
  next_beat_ = retry_at_ = give_up_ = kNever;
  all_.groups.fail(why);
  all_.senders.fail(why);
}

TimePoint ClientLink::silent_at() const {
  if (is_in()) return later(heard_, grace_);
  return is_entering() ? later(heard_, grace_ / 2) : kNever;
}

// How long to wait for a hub that leads. With several hubs, this rank may have to give up one first.
Duration ClientLink::hub_search_limit() const { return (all_.config.hubs.size() > 1 ? 2 : 1) * grace_; }

std::string ClientLink::why_none_leads() const {
  const std::string where = join_words(all_.config.hubs) + " for " +
                            in_seconds(entered_once_ ? hub_search_limit() : all_.config.join_timeout) +
                            (entered_once_ ? " (COLLAB_LINK_GRACE): " : " (COLLAB_JOIN_TIMEOUT): ");
  return minority_.empty() ? "no coordinator answers at " + where + last_problem_ + " [hub.unreachable]"
                           : "this rank's world has no majority at " + where + minority_ + " [hub.no-majority]";
}

void ClientLink::on_tick() {
  if (all_.now >= silent_at()) {
    close_link(is_in() ? "nothing heard from it for " + in_seconds(grace_) + " (COLLAB_LINK_GRACE)"
                       : std::string("it does not answer"));
  }
  // A hub that answers finds out by itself whether it can lead, and says so.
  if (all_.now >= give_up_ && !is_at_hub()) fail_permanently(unavailable(why_none_leads()));
  if (phase_ == Phase::kWaiting && all_.now >= retry_at_) dial();
  if (is_at_hub() && all_.now >= next_beat_) {
    all_.send(wire::Heartbeat{++beats_, false});
    next_beat_ = later(all_.now, heartbeat_);
  }
}

}  // namespace collab::protocol
