// That links which share a line, and know nothing of each other, are done together: each begins an exchange at the rate
// that it needed of the whole of the last one, and one that is ahead bears a shorter queue than the others.
//
// Threads: the IO thread. Ownership: for how long data has waited on any link, in the exchange under way.
#pragma once

#include "transport/tcp/link/link.h"
#include "transport/tcp/pace/backlog.h"

namespace collab::tcp {

struct EngineParts;

class Balance {
 public:
  explicit Balance(EngineParts& all) : all_(all) {}

  void tick(TimePoint now);  // once all links had theirs

 private:
  void compare();
  void note_exchange(TimePoint now);

  EngineParts& all_;
  Backlog backlog_;
};

}  // namespace collab::tcp
