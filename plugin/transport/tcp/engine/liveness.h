// Signs of life: which connections are asked for them. Without them a connection, or after its grace a link, is given
// up.
//
// Threads: the IO thread. Ownership: none. A connection knows when it was heard (connection/keepalive.h).
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
  // For an open link, at each tick. This thread was held up: what others said meanwhile waits to be read.
  static void reset_silence(const TcpLink& link, TimePoint now);
  void tick(TcpLink& link, TimePoint now);

 private:
  void check(TcpLink& link, Connection& connection, TimePoint now);
  void check_grace(TcpLink& link, TimePoint now);

  EngineParts& all_;
};

}  // namespace collab::tcp
