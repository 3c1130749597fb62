// Lets links that share a line, and know nothing of each other, finish together. Each begins an exchange at the mean
// rate that it needed for the whole of the last one. A link that is ahead bears a shorter queue than the others.
//
// Threads: the IO thread. Ownership: how long data has waited on any link in the current exchange.
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
