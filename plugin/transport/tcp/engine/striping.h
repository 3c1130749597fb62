// Which connection of a link carries what: control goes first, on its own connection; data goes to whichever
// connection at work is free.
//
// Threads: the IO thread. Ownership: none; whose turn it is, is the link's (Turn), and how much a connection takes at
// once its own (BatchSize).
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
  bool fill(TcpLink& link, Connection& connection, Lane lane, Duration patience);
  void pump_later(TcpLink& link);
  [[nodiscard]] bool slow(const TcpLink& link, std::size_t carriers) const;

  EngineParts& all_;
};

}  // namespace collab::tcp
