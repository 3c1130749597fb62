// Which data connections of a link work now. Under BBR this is a third of them, in turn.
//
// If BBR (version 1) has seen no shorter round trip for 10 s, it sends almost nothing for 200 ms and a round trip, to
// measure one. After a longer pause it takes the round trip of the first packets instead. So connections work in three
// shifts: 5.5 s of work, then 11 s of rest. Data in flight when the rest begins may show a new shortest round trip, and
// the 10 s count from there. Other congestion controls need no rest, and all connections work.
//
// Threads: the transport's IO thread. Ownership: plain values of a link. The engine's Pacing and Greeter call it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/tcp/link/link_connections.h"

namespace collab::tcp {

class Rotation {
 public:
  // A connection attached, under this congestion control.
  void attached(const Connection& connection, const std::string& congestion);
  // The largest useful number of data connections under this congestion control, given that a part of them rests.
  [[nodiscard]] static std::uint16_t most(const std::string& congestion);
  // Call about every tick while data waits and arrives.
  void tick(TimePoint now, const LinkConnections& connections);
  // The connections at work, among the first `most` data connections. Leaves out held ones, which carry no data.
  [[nodiscard]] std::vector<Connection*> at_work(const LinkConnections& connections, std::size_t most) const;

 private:
  [[nodiscard]] bool next_is_at_rest(const LinkConnections& connections) const;

  std::vector<bool> rests_;  // by index
  std::size_t shift_ = 0;
  TimePoint since_{};
};

}  // namespace collab::tcp
