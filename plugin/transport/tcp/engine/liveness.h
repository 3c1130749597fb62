// Pings connections for signs of life. Without any, it gives up a connection, and after its grace a link.
//
// Threads: the IO thread. Ownership: none. A connection knows when it was last heard (connection/keepalive.h).
#pragma once

#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Liveness {
 public:
  explicit Liveness(EngineParts& all) : all_(all) {}

  void attached(Connection& connection, TimePoint now);
  void heard(Connection& from);
  Status on_ping(Connection& from, std::uint64_t stamp);
  void answer(Connection& from);  // answers the last ping that was read, once all bytes are read
  void on_pong(TcpLink& link, Connection& from, const Pong& pong);
  // Called at a tick for an open link if this thread was held up: the peer's bytes still wait to be read, so its
  // silence counts from now.
  static void reset_silence(const TcpLink& link, TimePoint now);
  void tick(TcpLink& link, TimePoint now);

 private:
  void check(TcpLink& link, Connection& connection, TimePoint now);
  void check_grace(TcpLink& link, TimePoint now);

  EngineParts& all_;
};

}  // namespace collab::tcp
