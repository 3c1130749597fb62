#include "core/runtime/hub_driver.h"

#include <malloc.h>

#include <utility>
#include <variant>

#include "core/runtime/data/payload_buffer.h"

namespace collab {

void HubDriver::arrived(TimePoint now, LinkId link, wire::Message message, BufferPtr payload, std::string host) {
  feed(now, protocol::HubReceived{link, std::move(message), HubOutgoing::held(std::move(payload)), std::move(host)});
}

void HubDriver::feed(TimePoint now, const protocol::HubEvent& event) {
  for (const protocol::HubAction& action : hub_.step(now, event)) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
  const std::size_t held = hub_.held() + outgoing_.cost();
  trims_.holds(held);
  if (trims_.settle(held)) ::malloc_trim(0);
}

void HubDriver::act(const protocol::HubSend& action) {
  TransportMessage message = message_of(action);
  // The transport itself counts the messages that wait on its control lane.
  if (message.lane == Lane::kControl) return transport_.send(action.link, std::move(message), 0);
  protocol::Payload payload = action.payload;
  const std::uint64_t token = outgoing_.sends(action.link, message.head.size(), payload);
  message.payload = as_buffer(payload);
  transport_.send(action.link, std::move(message), token);
  const auto is_left = [this](LinkId link) { return links_.has_left(link); };
  while (const std::optional<LinkId> slow = outgoing_.too_much(is_left)) {
    links_.expel(
        *slow,
        "a rank takes less than it says it holds, or than it asks for: too much is on its way to it [hub.slow-reader]");
  }
}

std::optional<protocol::CallsUnderWay> HubDriver::news_of_calls(bool waits, std::uint64_t changes,
                                                                const protocol::CollectiveHub::SitesOf& sites_of) {
  const std::tuple seen(waits, changes, hub_.changes_of_calls());
  if (seen == std::exchange(calls_seen_, seen)) return std::nullopt;
  protocol::CallsUnderWay calls;
  if (waits) calls = hub_.calls_under_way(sites_of);
  if (calls == calls_) return std::nullopt;
  calls_ = calls;
  return calls;
}

}  // namespace collab
