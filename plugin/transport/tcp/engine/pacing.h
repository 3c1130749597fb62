// Decides how fast a link sends: measures its connections at each tick.
//
// Threads: the IO thread. Ownership: none. A link owns the measurements of its line (link/link_pacing.h).
#pragma once

#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Pacing {
 public:
  explicit Pacing(EngineParts& all) : all_(all) {}

  void tick(TcpLink& link, TimePoint now);

 private:
  static void keep_pace(TcpLink& link, TimePoint now, bool backlogged);
  static void probe_one_way_delay(const TcpLink& link, TimePoint now);

  EngineParts& all_;
};

}  // namespace collab::tcp
