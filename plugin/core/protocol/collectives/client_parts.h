// The parts of a hub client, and what all of them may use: configuration, time, and the list of what is to be done.
//
//   link      the way to a hub that leads: finding one, being heard by it, losing it
//   acceptor  what this rank has promised and accepted of memberships
//   groups    its groups, each with its part of what is under way and the results it holds
//   senders   whom it waits for without knowing who it is
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

  // The state of the step under way.
  TimePoint now{};
  std::vector<HubClientAction> out{};

  void send(wire::Message message, Payload payload = {}) {
    out.emplace_back(HubSend{link.link(), std::move(message), std::move(payload)});
  }
};

}  // namespace collab::protocol
