// A transport inside one process: several nodes meet at one hub, as if each were a machine.
//
// Addresses are "name:port"; any name may be listened on. Payloads are copied once, at delivery, so a
// sender that reuses a buffer after on_sent cannot change what the receiver sees.
//
// Threads: each transport delivers from a thread of its own. One mutex in the hub guards everything but
// the handlers and the copies, which run without it.
// Ownership: transports share the hub; a transport's links end with it.
#pragma once

#include <memory>

#include "collab/transport.h"

namespace collab::testing {

// Where the loopback transports of one test find each other.
class LoopbackHub {
 public:
  LoopbackHub();
  ~LoopbackHub();
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;

 private:
  friend class LoopbackTransport;
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackHub> hub);

}  // namespace collab::testing
