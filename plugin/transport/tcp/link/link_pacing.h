// The pace of one link, and the measurements of its line. At each tick, the kernel's figures of its data connections
// determine the pace.
//
// Threads: the transport's IO thread. Ownership: plain values of a link. The engine's Pacing and Balance change it, and
// so do the parts that learn of arrivals (Sessions, Liveness).
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "transport/tcp/link/link_connections.h"
#include "transport/tcp/pace/backlog.h"
#include "transport/tcp/pace/link_pace.h"

namespace collab::tcp {

// With more data connections than this at work, each one is slow, and gets little data at a time.
inline constexpr std::size_t kFewCarriers = 8;

class LinkPacing {
 public:
  // Call first at each tick. `waiting`: data waits to be sent. Returns whether data has waited since the last tick.
  bool begin_tick(TimePoint now, bool waiting, bool alone);
  // Call while there is no connection for data.
  void pause() { pace_.pause(); }
  // Sets the pace of `carriers`, the connections at work. False: the system gives no figures.
  bool keep(TimePoint now, const LinkConnections& connections, const std::vector<Connection*>& carriers,
            bool backlogged);

  void data_arrived(TimePoint now) { data_arrived_ = now; }  // data has arrived at the peer
  [[nodiscard]] bool arrives(TimePoint now, Duration round_trip) const;
  // The delay of a ping on the control connection, plus a constant: the difference of the two clocks.
  void note_one_way_delay(Duration took) { one_way_delay_ = std::min(one_way_delay_.value_or(Duration::max()), took); }

  // Data was waiting at the last tick.
  [[nodiscard]] bool backlogged() const { return was_backlogged_; }
  [[nodiscard]] const LinkPace& pace() const { return pace_; }
  // This link's result of Remaining::behind().
  void set_behind(double behind) { behind_ = behind; }
  // An exchange of all links has ended. `of_all`: how long data waited on any link.
  void exchange_ended(const Backlog& of_all) { pace_.exchange_ended(backlog_.take_share(of_all)); }

 private:
  std::optional<LinkPace::PathSample> look(const LinkConnections& connections,
                                           const std::vector<Connection*>& carriers);

  LinkPace pace_;
  Backlog backlog_;
  bool was_backlogged_ = false;
  double behind_ = 0;
  std::optional<Duration> one_way_delay_;     // the shortest since the last tick
  std::uint64_t delivered_ = 0, resent_ = 0;  // bytes on data connections, as counted by the kernel
  TimePoint data_arrived_{};
};

}  // namespace collab::tcp
