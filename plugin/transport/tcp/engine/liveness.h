// Signs of life: who is asked for them, and what is given up without them, a connection or, after its grace, a link.
//
// Threads: the IO thread. Ownership: none; when a connection was heard is its own (connection/signs_of_life.h).
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
  void answer(Connection& from);  // the last of the pings that were read, once all has been read
  void on_pong(TcpLink& link, Connection& from, const Pong& pong);
  // Of an open link, at each tick. We were held up: what others said meanwhile waits to be read.
  static void excuse(const TcpLink& link, TimePoint now);
  void tick(TcpLink& link, TimePoint now);

 private:
  void check(TcpLink& link, Connection& connection, TimePoint now);
  void check_grace(TcpLink& link, TimePoint now);

  EngineParts& all_;
};

}  // namespace collab::tcp
