// Which connection of a link carries what. Control goes first, on its own connection. Data goes to any working
// connection that is free.
//
// Threads: the IO thread. Ownership: none. The link knows whose turn it is (Turn), and a connection knows how much it
// takes at once (BatchSize).
#pragma once

#include <vector>

#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Striping {
 public:
  explicit Striping(EngineParts& all) : all_(all) {}

  // Hands over what connections take now.
  void pump(TcpLink& link);
  // The connections that data goes to now.
  [[nodiscard]] static std::vector<Connection*> carriers(const TcpLink& link);

 private:
  bool fill(TcpLink& link, Connection& connection, Lane lane, Duration hang);
  void pump_later(TcpLink& link);
  [[nodiscard]] bool slow(const TcpLink& link, std::size_t carriers) const;

  EngineParts& all_;
};

}  // namespace collab::tcp
