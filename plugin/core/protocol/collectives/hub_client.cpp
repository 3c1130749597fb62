// Which part answers which event.
#include "core/protocol/collectives/hub_client.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/client_parts.h"

namespace collab::protocol {

HubClient::HubClient(HubClientConfig config) : parts_(std::make_unique<HubClientParts>(std::move(config))) {}
HubClient::~HubClient() = default;
HubClient::HubClient(HubClient&&) noexcept = default;
HubClient& HubClient::operator=(HubClient&&) noexcept = default;

std::vector<HubClientAction> HubClient::step(TimePoint now, const HubClientEvent& event) {
  parts_->now = now;
  std::visit([this](const auto& what) { on_event(what); }, event);
  return std::exchange(parts_->out, {});
}

TimePoint HubClient::next_deadline() const {
  return std::min({parts_->link.next_deadline(), parts_->groups.next_deadline(), parts_->senders.next_deadline()});
}

// ---- events from the caller

void HubClient::on_event(const HubBegin&) { parts_->link.begin(); }
void HubClient::on_event(const OpenGroup& event) { parts_->groups.open(event); }
void HubClient::on_event(const HubRequest& event) { parts_->groups.exchange(event); }
void HubClient::on_event(const SeekSender& event) { parts_->senders.resolve(event); }
void HubClient::on_event(const HubLeave& event) { parts_->link.leave(event.reason); }

void HubClient::on_event(const CloseGroup& event) {
  const Status why = cancelled("the group was closed [hub.group-closed]");
  if (parts_->groups.close(event.group, why)) parts_->senders.close(event.group, why);
}

// ---- events from the link

void HubClient::on_event(const HubConnected& event) { parts_->link.on_connected(event.link); }
void HubClient::on_event(const HubDialFailed& event) { parts_->link.on_dial_failed(event.why); }

void HubClient::on_event(const Closed& event) {
  if (event.link == parts_->link.link()) parts_->link.on_closed(event.why);
}

void HubClient::on_event(const HubReceived& event) {
  HubClientParts& all = *parts_;
  if (event.link != all.link.link()) return;
  all.link.heard();
  if (const auto* m = std::get_if<wire::Entered>(&event.message)) return on_entered(*m);
  if (const auto* m = std::get_if<wire::PrepareWorld>(&event.message)) return on_prepare(*m);
  if (const auto* m = std::get_if<wire::AcceptEpoch>(&event.message)) return on_accept(*m);
  if (const auto* m = std::get_if<wire::ChosenEpoch>(&event.message)) return all.acceptor.learn(m->epoch);
  if (const auto* m = std::get_if<wire::Refuse>(&event.message)) return all.link.break_down(refused(m->reason));
  if (const auto* m = std::get_if<wire::Notice>(&event.message)) return all.link.on_notice(*m);
  if (const auto* m = std::get_if<wire::Part>(&event.message)) return all.groups.on_part(*m, event.payload);
  if (const auto* m = std::get_if<wire::StepResult>(&event.message)) return all.groups.on_result(*m);
  if (const auto* m = std::get_if<wire::Stands>(&event.message)) return all.groups.on_stands(*m);
  if (const auto* m = std::get_if<wire::SenderResolved>(&event.message)) return all.senders.on_resolved(*m);
  if (!std::holds_alternative<wire::Heartbeat>(event.message)) all.link.hang_up("it sent a message of another kind");
}

void HubClient::on_prepare(const wire::PrepareWorld& message) {
  if (parts_->acceptor.promise(message.ballot)) return parts_->link.enter();
  parts_->link.hang_up("it follows an older ballot than this rank has promised");
}

void HubClient::on_entered(const wire::Entered& message) {
  HubClientParts& all = *parts_;
  if (!all.link.is_entering()) return;
  if (!all.acceptor.promise(message.ballot)) {
    return all.link.hang_up("it follows an older ballot than this rank has promised");
  }
  all.acceptor.learn(message.chosen);
  all.link.on_entered(message);
  all.groups.say_everything();
  all.senders.say_everything();
}

void HubClient::on_accept(const wire::AcceptEpoch& message) {
  if (parts_->acceptor.accept(message)) parts_->send(wire::AcceptedEpoch{message.ballot, message.epoch.number});
}

// ---- time

void HubClient::on_event(const Tick&) {
  parts_->link.on_tick();
  parts_->groups.on_tick();
  parts_->senders.on_tick();
}

}  // namespace collab::protocol
