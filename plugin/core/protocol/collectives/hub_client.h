// A rank's side of a collective hub (collective_hub.h): one link to the hub (client_link.h has the drawing), one step
// at a time in each group.
//
// The client is an acceptor of its world's memberships, and of the results of its groups' steps. It holds a result
// until the hub tells it that the result stands. Its memory is not durable, so a process that has died is gone for
// good. It keeps its own parts of steps under way, and brings them again to the next hub. Pure: no socket, thread,
// clock or random source. Threads: one caller at a time. Ownership: its own state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collab/config.h"
#include "core/protocol/collectives/hub_actions.h"

namespace collab::protocol {

struct HubClientConfig {
  wire::Enter self;               // the client fills in `candidates` and the acceptor's state
  std::vector<std::string> hubs;  // addresses, for messages; DialHub gives an index into it
  Duration heartbeat = default_config().heartbeat;
  Duration link_grace = default_config().link_grace;
  Duration join_timeout = default_config().join_timeout;
};

struct HubClientParts;

class HubClient {
 public:
  explicit HubClient(HubClientConfig config);
  ~HubClient();

  [[nodiscard]] std::vector<HubClientAction> step(TimePoint now, const HubClientEvent& event);
  [[nodiscard]] TimePoint next_deadline() const;

 private:
  std::unique_ptr<HubClientParts> parts_;
};

}  // namespace collab::protocol
