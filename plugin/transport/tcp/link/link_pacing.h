// How fast one link sends, and what is known of its line: each tick the kernel's figures of its data connections become
// a pace, and whether the line has fallen silent.
//
// Threads: the transport's IO thread. Ownership: plain values, a link's own. Who changes it: the engine's Pacing and
// Balance, and those who hear of arrivals (Sessions, Liveness).
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "transport/tcp/link/link_connections.h"
#include "transport/tcp/pace/backlog.h"
#include "transport/tcp/pace/link_pace.h"
#include "transport/tcp/pace/silence.h"

namespace collab::tcp {

// Of more data connections at work than these each is slow, and holds little at a time.
inline constexpr std::size_t kFewCarriers = 8;

class LinkPacing {
 public:
  // Called first at each tick. `waiting`: data waits to be sent. Returns whether it has since the last tick.
  bool begin_tick(TimePoint now, bool waiting, bool alone);
  // There is no connection for data.
  void pause();
  // Keeps the connections at work, `carriers`, at their pace. False: the system does not say how they do.
  bool keep(TimePoint now, const LinkConnections& connections, const std::vector<Connection*>& carriers,
            bool backlogged, Duration round_trip);

  void data_arrived(TimePoint now) { data_arrived_ = now; }  // at the peer
  [[nodiscard]] bool arrives(TimePoint now, Duration round_trip) const;
  // Of a ping on the control connection, in clocks that differ by a constant.
  void note_way_out(Duration took) { way_out_ = std::min(way_out_.value_or(Duration::max()), took); }
  // A connection is new: of what others have on their way it knows nothing.
  void connection_attached() { silence_.forget(); }

  // Data stood in line at the last tick.
  [[nodiscard]] bool backlogged() const { return was_backlogged_; }
  [[nodiscard]] bool silent() const { return silent_; }  // nothing more is sent meanwhile
  [[nodiscard]] const LinkPace& pace() const { return pace_; }
  // Of all links with data at one time, see Remaining.
  void set_behind(double behind) { behind_ = behind; }
  // An exchange of all links has ended, in which data waited for so long.
  void exchange_ended(const Backlog& of_all) { pace_.exchange_ended(backlog_.take_share(of_all)); }

 private:
  std::optional<LinkPace::Sight> look(const LinkConnections& connections, const std::vector<Connection*>& carriers);

  LinkPace pace_;
  Silence silence_;
  Backlog backlog_;
  bool was_backlogged_ = false;
  bool silent_ = false;
  double behind_ = 0;
  std::optional<Duration> way_out_;           // the shortest since the last tick
  std::uint64_t delivered_ = 0, resent_ = 0;  // bytes of data connections, as the kernel counts
  TimePoint data_arrived_{};
};

}  // namespace collab::tcp
