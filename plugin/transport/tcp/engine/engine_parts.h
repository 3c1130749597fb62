// The parts of the engine.
//
//   links      the links, and how they end
//   pending    the ports, and connections that have not sent a hello
//   dialler    when and where connections are dialled, and again after a failure
//   greeter    hello and welcome: how a connection becomes a link's, and ceases to be
//   sessions   what arrives and is acknowledged, and how a link is closed
//   striping   which connection carries which segments
//   pacing     how fast a link sends
//   balance    lets links that share a line finish together
//   number     how many data connections a link has
//   caps       what the user's caps leave to each link
//   liveness   keepalives, and what happens without them
//   tokens     closes connections whose token was taken out of the file
//   upkeep     the ticker, and giving back memory
//
// Each part has private fields and never changes those of another part: it asks the owner, through `all_`. The state of
// one link is in link/, also in parts. TcpEngine (tcp_engine.h) routes calls, frames and ticks to the parts.
//
// Threads: the IO thread. Ownership: parts refer to this struct, so it stays where it is.
#pragma once

#include <functional>
#include <memory>

#include "transport/tcp/engine/balance.h"
#include "transport/tcp/engine/caps.h"
#include "transport/tcp/engine/dialler.h"
#include "transport/tcp/engine/greeter.h"
#include "transport/tcp/engine/links.h"
#include "transport/tcp/engine/liveness.h"
#include "transport/tcp/engine/mailbox.h"
#include "transport/tcp/engine/number_search.h"
#include "transport/tcp/engine/pacing.h"
#include "transport/tcp/engine/pending_connections.h"
#include "transport/tcp/engine/sessions.h"
#include "transport/tcp/engine/striping.h"
#include "transport/tcp/engine/tcp_context.h"
#include "transport/tcp/engine/token_watch.h"
#include "transport/tcp/engine/upkeep.h"

namespace collab::tcp {

struct EngineParts {
  EngineParts(TcpOptions options, std::shared_ptr<TlsKeys> keys, ConnectionOwner& owner, std::function<void()> look,
              std::function<void()> tick);
  EngineParts(const EngineParts&) = delete;
  EngineParts& operator=(const EngineParts&) = delete;
  ~EngineParts() = default;

  [[nodiscard]] TimePoint now() const { return context.now(); }
  [[nodiscard]] bool encrypts() const { return connection_context.keys != nullptr; }
  [[nodiscard]] ConnectionPtr make_connection() {
    return std::make_shared<Connection>(connection_context, next_carrier++);
  }

  TcpContext context;
  const std::shared_ptr<Mailbox> mailbox;
  ConnectionContext connection_context;
  ConnectionId next_carrier = 1;
  Links links;
  PendingConnections pending;
  Dialler dialler;
  Greeter greeter;
  Sessions sessions;
  Striping striping;
  Pacing pacing;
  Balance balance;
  NumberSearch number;
  Caps caps;
  Liveness liveness;
  TokenWatch tokens;
  Upkeep upkeep;
};

}  // namespace collab::tcp
