// Lets links that share a line finish together, although their senders do not coordinate. Each link starts an exchange
// at its mean rate over the whole last exchange. A link that is ahead aims at a shorter queue than the others.
//
// Threads: the IO thread. Ownership: owns the backlog of all links in the current exchange.
#pragma once

#include "transport/tcp/link/link.h"
#include "transport/tcp/pace/backlog.h"

namespace collab::tcp {

struct EngineParts;

class Balance {
 public:
  explicit Balance(EngineParts& all) : all_(all) {}

  void tick(TimePoint now);  // after the tick of all links

 private:
  void compare();
  void note_exchange(TimePoint now);

  EngineParts& all_;
  Backlog backlog_;
};

}  // namespace collab::tcp
