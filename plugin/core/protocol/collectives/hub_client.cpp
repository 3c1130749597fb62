// Routes events to the parts.
#include "core/protocol/collectives/hub_client.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/client_parts.h"

namespace collab::protocol {
namespace {

// ---- events from the caller

void on_event(HubClientParts& all, const HubBegin&) { all.link.begin(); }
void on_event(HubClientParts& all, const OpenGroup& event) { all.groups.open(event); }
void on_event(HubClientParts& all, const HubRequest& event) { all.groups.exchange(event); }
void on_event(HubClientParts& all, const ResolveSender& event) { all.senders.resolve(event); }
void on_event(HubClientParts& all, const HubLeave& event) { all.link.leave(event.reason); }
void on_event(HubClientParts& all, const HubMessageTooLarge& event) { all.link.fail_permanently(event.why); }
void on_event(HubClientParts& all, const CloseGroup& event) { all.groups.close(event.group); }

// ---- events from the link

void on_event(HubClientParts& all, const HubConnected& event) { all.link.on_connected(event.link); }
void on_event(HubClientParts& all, const HubDialFailed& event) { all.link.on_dial_failed(event.why); }

void on_event(HubClientParts& all, const Closed& event) {
  if (event.link == all.link.link()) all.link.on_closed(event.why);
}

void on_prepare(HubClientParts& all, const wire::PrepareWorld& message) {
  if (all.acceptor.promise(message.ballot)) return all.link.enter();
  all.link.close_link("it follows an older ballot than this rank has promised");
}

void on_entered(HubClientParts& all, const wire::Entered& message) {
  if (!all.link.is_entering()) return;
  if (!all.acceptor.promise(message.ballot)) {
    return all.link.close_link("it follows an older ballot than this rank has promised");
  }
  all.acceptor.learn(message.chosen);
  all.link.on_entered(message);
  all.groups.resend_state();
  all.senders.resend_state();
}

void on_accept(HubClientParts& all, const wire::AcceptEpoch& message) {
  if (all.acceptor.accept(message)) all.send(wire::AcceptedEpoch{message.ballot, message.epoch.number});
}

void on_event(HubClientParts& all, const HubReceived& event) {
  if (event.link != all.link.link()) return;
  all.link.heard();
  if (const auto* m = std::get_if<wire::Entered>(&event.message)) return on_entered(all, *m);
  if (const auto* m = std::get_if<wire::PrepareWorld>(&event.message)) return on_prepare(all, *m);
  if (const auto* m = std::get_if<wire::AcceptEpoch>(&event.message)) return on_accept(all, *m);
  if (const auto* m = std::get_if<wire::ChosenEpoch>(&event.message)) return all.acceptor.learn(m->epoch);
  if (const auto* m = std::get_if<wire::Refuse>(&event.message)) return all.link.fail_permanently(refused(m->reason));
  if (const auto* m = std::get_if<wire::Notice>(&event.message)) return all.link.on_notice(*m);
  if (const auto* m = std::get_if<wire::Part>(&event.message)) return all.groups.on_part(*m, event.payload);
  if (const auto* m = std::get_if<wire::StepResult>(&event.message)) return all.groups.on_result(*m);
  if (const auto* m = std::get_if<wire::Stands>(&event.message)) return all.groups.on_stands(*m);
  if (const auto* m = std::get_if<wire::SenderResolved>(&event.message)) return all.senders.on_resolved(*m);
  if (!std::holds_alternative<wire::Heartbeat>(event.message)) all.link.close_link("it sent a message of another kind");
}

// ---- time

void on_event(HubClientParts& all, const Tick&) {
  all.link.on_tick();
  all.groups.on_tick();
  all.senders.on_tick();
}

}  // namespace

HubClient::HubClient(HubClientConfig config) : parts_(std::make_unique<HubClientParts>(std::move(config))) {}
HubClient::~HubClient() = default;

std::vector<HubClientAction> HubClient::step(TimePoint now, const HubClientEvent& event) {
  parts_->now = now;
  std::visit([this](const auto& what) { on_event(*parts_, what); }, event);
  return std::exchange(parts_->out, {});
}

TimePoint HubClient::next_deadline() const {
  return std::min({parts_->link.next_deadline(), parts_->groups.next_deadline(), parts_->senders.next_deadline()});
}

}  // namespace collab::protocol
