// The parts of a hub client, and the state that they share: configuration, time, and the list of actions.
//
//   link      the link to a leading hub: finds a hub, keeps the link alive, handles its loss
//   acceptor  the memberships that this rank has promised and accepted
//   groups    its groups, each with its part of the step under way and the results it holds
//   senders   waits for messages whose sender is not known
//
// Each part has private fields and changes no other's: it asks the part that owns them, over `all_`. HubClient
// (hub_client.h) routes events to them.
//
// Threads: one caller at a time. Ownership: plain values; parts refer to this struct, so it stays where it is.
#pragma once

#include <utility>
#include <vector>

#include "core/protocol/collectives/client_acceptor.h"
#include "core/protocol/collectives/client_groups.h"
#include "core/protocol/collectives/client_link.h"
#include "core/protocol/collectives/client_senders.h"
#include "core/protocol/collectives/hub_client.h"

namespace collab::protocol {

struct HubClientParts {
  explicit HubClientParts(HubClientConfig c) : config(std::move(c)), link(*this), groups(*this), senders(*this) {}

  HubClientConfig config;
  ClientLink link;
  ClientAcceptor acceptor{};
  ClientGroups groups;
  ClientSenders senders;

  // The state of the current call of step().
  TimePoint now{};
  std::vector<HubClientAction> out{};

  void send(wire::Message message, Payload payload = {}) {
    out.emplace_back(HubSend{link.link(), std::move(message), std::move(payload)});
  }
};

}  // namespace collab::protocol
