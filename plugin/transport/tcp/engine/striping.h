// Decides which connection of a link carries which segments. Control goes first, on its own connection. Data goes to
// any free connection at work.
//
// Threads: the IO thread. Ownership: none. The link knows which connection is next (Turn), and a connection knows its
// batch size (BatchSize).
#pragma once

#include <vector>

#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Striping {
 public:
  explicit Striping(EngineParts& all) : all_(all) {}

  // Hands segments to the connections, as far as they take them now.
  void pump(TcpLink& link);
  // The connections that carry data now.
  [[nodiscard]] static std::vector<Connection*> carriers(const TcpLink& link);

 private:
  bool fill(TcpLink& link, Connection& connection, Lane lane, Duration hang);
  void pump_later(TcpLink& link);
  [[nodiscard]] bool slow(const TcpLink& link, std::size_t carriers) const;

  EngineParts& all_;
};

}  // namespace collab::tcp
