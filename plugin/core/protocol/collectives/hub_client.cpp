// The way to a hub that leads, and this rank's word on who is gone.
#include "core/protocol/collectives/hub_client.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_client_state.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(200);
constexpr int kDialsEach = 2;  // that come to nothing, before the next candidate

}  // namespace

void HubClient::State::send(wire::Message message, Payload payload) {
  actions.emplace_back(HubSend{link, std::move(message), std::move(payload)});
}

void HubClient::State::on(const HubBegin&) {
  if (phase != Phase::kNotBegun) return;
  give_up = later(now, config.join_timeout);
  dial();
}

void HubClient::State::on(const HubDialFailed& event) {
  if (phase != Phase::kDialling) return;
  is_final(event.why) ? break_down(event.why) : lost(event.why.message(), true);
}

void HubClient::State::dial() {
  phase = Phase::kDialling;
  retry_at = kNever;
  actions.emplace_back(DialHub{candidate});
}

// A wrong key does not become right by trying again.
bool HubClient::State::is_final(const Status& why) const { return why.code() == StatusCode::kRefused && !entered_once; }

// `unanswered`: nobody is there. A hub that was reached and lost again is still the one the others are with.
void HubClient::State::lost(const std::string& why, bool unanswered) {
  last_problem = why;
  if (phase == Phase::kIn) {
    actions.emplace_back(make_note(Note::Level::kWarning, "meeting",
                                   "the link to the coordinator at " + config.hubs[candidate] + " is lost: " + why +
                                       "; it is dialled again [hub.link-lost]"));
    failed_dials = 0;
  } else if (unanswered && ++failed_dials >= kDialsEach) {
    failed_dials = 0;
    candidate = (candidate + 1) % static_cast<std::uint32_t>(config.hubs.size());
  }
  const int rounds = config.hubs.size() > 1 ? 2 : 1;
  if (give_up == kNever) give_up = later(now, rounds * config.link_grace);
  phase = Phase::kWaiting;
  link = {};
  next_beat = kNever;
  retry_at = later(now, kRetry);
}

void HubClient::State::hang_up(const std::string& why) {
  if (link.value != 0) actions.emplace_back(Hangup{link, why});
  lost(why, phase == Phase::kEntering);
}

void HubClient::State::break_down(Status why) {
  if (!broken.ok()) return;
  broken = std::move(why);
  if (link.value != 0) actions.emplace_back(Hangup{link, broken.message()});
  link = {};
  phase = Phase::kLeft;
  next_beat = retry_at = give_up = kNever;
  fail_everything(broken);
  actions.emplace_back(HubBroken{broken});
}

void HubClient::State::connected(LinkId new_link) {
  if (phase != Phase::kDialling) {
    actions.emplace_back(Hangup{new_link, "not wanted any more"});
    return;
  }
  phase = Phase::kEntering;
  link = new_link;
  heard = now;
  next_beat = later(now, config.heartbeat);
  enter();
}

void HubClient::State::enter() {
  wire::Enter message = config.self;
  message.candidates = static_cast<std::uint32_t>(config.hubs.size());
  message.returning = entered_once;
  message.promised = promised;
  message.chosen = chosen;
  message.accepted_under = accepted_under;
  message.accepted = accepted;
  remember(message);
  untold.clear();
  send(std::move(message));
}

// A promise, and everything that was accepted before it.
void HubClient::State::prepare(const wire::PrepareWorld& message) {
  if (message.ballot < promised) return hang_up("it follows an older ballot than this rank has promised");
  promised = message.ballot;
  phase = Phase::kEntering;
  enter();
}

void HubClient::State::entered(const wire::Entered& message) {
  if (phase != Phase::kEntering) return;
  if (message.ballot < promised) return hang_up("it follows an older ballot than this rank has promised");
  promised = message.ballot;
  learn(message.chosen);
  phase = Phase::kIn;
  give_up = kNever;
  failed_dials = 0;
  minority.clear();
  config.heartbeat = std::chrono::milliseconds(std::max(message.heartbeat_ms, 1U));
  config.link_grace = std::chrono::milliseconds(std::max(message.grace_ms, 1U));
  next_beat = later(now, config.heartbeat);
  if (!std::exchange(entered_once, true)) actions.emplace_back(HubEntered{});
  say_everything();
}

void HubClient::State::accept(const wire::AcceptEpoch& message) {
  if (message.ballot != promised) return;
  if (message.epoch.number != chosen.number + 1) return;
  accepted_under = message.ballot;
  accepted = message.epoch;
  send(wire::AcceptedEpoch{message.ballot, message.epoch.number});
}

void HubClient::State::learn(const wire::Epoch& epoch) {
  if (epoch.number <= chosen.number) return;
  chosen = epoch;
  if (accepted.number > chosen.number) return;
  accepted_under = {};
  accepted = {};
}

// Those who are there are too few: the others may be at another hub.
void HubClient::State::sent_away(const wire::Notice& message) {
  if (message.event != kMinority) return;
  minority = message.text;
  actions.emplace_back(Hangup{link, minority});
  phase = Phase::kEntering;
  failed_dials = kDialsEach - 1;
  lost("the coordinator at " + config.hubs[candidate] + " says: " + minority, true);
}

void HubClient::State::on(const HubReceived& event) {
  if (event.link != link) return;
  heard = now;
  if (const auto* m = std::get_if<wire::Entered>(&event.message)) return entered(*m);
  if (const auto* m = std::get_if<wire::PrepareWorld>(&event.message)) return prepare(*m);
  if (const auto* m = std::get_if<wire::AcceptEpoch>(&event.message)) return accept(*m);
  if (const auto* m = std::get_if<wire::ChosenEpoch>(&event.message)) return learn(m->epoch);
  if (const auto* m = std::get_if<wire::Refuse>(&event.message)) return break_down(refused(m->reason));
  if (const auto* m = std::get_if<wire::Notice>(&event.message)) return sent_away(*m);
  if (const auto* m = std::get_if<wire::Part>(&event.message)) return part(*m, event.payload);
  if (const auto* m = std::get_if<wire::StepResult>(&event.message)) return result(*m);
  if (const auto* m = std::get_if<wire::Stands>(&event.message)) return stands(m->group, m->step);
  if (const auto* m = std::get_if<wire::SenderResolved>(&event.message)) return found(*m);
  if (std::holds_alternative<wire::Heartbeat>(event.message)) return;
  hang_up("it sent a message of another kind");
}

void HubClient::State::on(const Closed& event) {
  if (event.link != link || phase == Phase::kLeft) return;
  if (is_final(event.why)) return break_down(event.why);
  lost(event.why.ok() ? "it was closed" : event.why.message());
}

TimePoint HubClient::State::silent_at() const {
  if (phase == Phase::kIn) return later(heard, config.link_grace);
  return phase == Phase::kEntering ? later(heard, config.link_grace / 2) : kNever;
}

std::string HubClient::State::why_none_leads() const {
  const Duration waited = entered_once ? (config.hubs.size() > 1 ? 2 : 1) * config.link_grace : config.join_timeout;
  const std::string where = join_words(config.hubs) + " for " + in_seconds(waited) +
                            (entered_once ? " (COLLAB_LINK_GRACE): " : " (COLLAB_JOIN_TIMEOUT): ");
  return minority.empty() ? "no coordinator answers at " + where + last_problem + " [hub.unreachable]"
                          : "this rank's world has no majority at " + where + minority + " [hub.no-majority]";
}

void HubClient::State::on(const Tick&) {
  if (now >= silent_at()) {
    hang_up(phase == Phase::kIn ? "nothing heard from it for " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)"
                                : std::string("it does not answer"));
  }
  // A hub that is there finds out whether it can lead, and says so.
  if (now >= give_up && !is_at_hub()) break_down(unavailable(why_none_leads()));
  if (phase == Phase::kWaiting && now >= retry_at) dial();
  if (is_at_hub() && now >= next_beat) {
    send(wire::Heartbeat{++beats, false});
    next_beat = later(now, config.heartbeat);
  }
  time_out();
}

void HubClient::State::on(const HubLeave& event) {
  if (phase == Phase::kLeft) return;
  if (is_at_hub()) {
    send(wire::Leave{event.reason});
    actions.emplace_back(Hangup{link, event.reason});
  }
  phase = Phase::kLeft;
  link = {};
  next_beat = retry_at = give_up = kNever;
  fail_everything(cancelled("this rank has left its world's collectives [hub.left]"));
}

HubClient::HubClient(HubClientConfig config) : state_(std::make_unique<State>()) { state_->config = std::move(config); }
HubClient::~HubClient() = default;
HubClient::HubClient(HubClient&&) noexcept = default;
HubClient& HubClient::operator=(HubClient&&) noexcept = default;

std::vector<HubClientAction> HubClient::step(TimePoint now, const HubClientEvent& event) {
  State& state = *state_;
  state.now = now;
  std::visit([&](const auto& each) { state.on(each); }, event);
  return std::exchange(state.actions, {});
}

TimePoint HubClient::next_deadline() const {
  const State& state = *state_;
  TimePoint next = std::min({state.next_beat, state.retry_at, state.silent_at()});
  if (!state.is_at_hub()) next = std::min(next, state.give_up);
  for (const auto& [id, group] : state.groups) {
    if (group.pending) next = std::min(next, group.pending->deadline);
  }
  for (const auto& [id, seeking] : state.resolving) next = std::min(next, seeking.deadline);
  return next;
}

}  // namespace collab::protocol
