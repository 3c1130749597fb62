#include "core/protocol/collectives/client_senders.h"

#include <algorithm>

#include "core/protocol/collectives/client_parts.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {

TimePoint ClientSenders::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [id, wait] : waiting_) next = std::min(next, wait.deadline);
  return next;
}

void ClientSenders::resolve(const ResolveSender& event) {
  if (const Status why = all_.link.why_over(); !why.ok()) {
    all_.out.emplace_back(SenderResolved{event.id, why, 0});
    return;
  }
  waiting_[event.id] = {event, event.timeout.count() > 0 ? later(all_.now, event.timeout) : kNever};
  if (all_.link.is_in()) all_.send(wire::ResolveSender{event.group, event.tag});
}

void ClientSenders::resend_state() {
  for (const auto& [id, wait] : waiting_) all_.send(wire::ResolveSender{wait.event.group, wait.event.tag});
}

void ClientSenders::on_resolved(const wire::SenderResolved& message) {
  const auto match = std::ranges::find_if(waiting_, [&](const auto& entry) {
    return entry.second.event.group == message.group && entry.second.event.tag == message.tag;
  });
  if (match == waiting_.end()) return;
  all_.out.emplace_back(SenderResolved{match->first, {}, message.from});
  waiting_.erase(match);
}

template <typename Why>
void ClientSenders::fail_if(Why why) {
  std::erase_if(waiting_, [&](const auto& entry) {
    const Status status = why(entry.second);
    if (!status.ok()) all_.out.emplace_back(SenderResolved{entry.first, status, 0});
    return !status.ok();
  });
}

void ClientSenders::on_tick() {
  fail_if([&](const Wait& wait) -> Status {
    if (all_.now < wait.deadline) return {};
    return timed_out("no rank has sent anything with tag " + std::to_string(wait.event.tag) + " within " +
                     in_seconds(wait.event.timeout) + " [hub.no-sender]");
  });
}

void ClientSenders::close(GroupId group, const Status& why) {
  fail_if([&](const Wait& wait) { return wait.event.group == group ? why : Status{}; });
}

void ClientSenders::fail(const Status& why) {
  fail_if([&](const Wait&) { return why; });
}

}  // namespace collab::protocol
