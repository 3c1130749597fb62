// Where a link is dialled, and when again: its addresses in turn, and for each connection a pause that grows.
//
// Threads: the transport's IO thread. Ownership: plain values, a link's own; the engine's Dialler decides.
#pragma once

#include <cstddef>
#include <vector>

#include "collab/clock.h"
#include "transport/tcp/connection/tcp_socket.h"

namespace collab::tcp {

class Redial {
 public:
  // Until then the link is to be open.
  void begin(TimePoint open_by) { open_by_ = open_by; }
  [[nodiscard]] TimePoint open_by() const { return open_by_; }
  void found(Endpoints endpoints);     // by name, for the first time
  void found_anew(Endpoints current);  // the turn stays where it is, if that is still there
  [[nodiscard]] const Endpoint& to() const { return endpoints_[next_]; }
  [[nodiscard]] bool try_another();  // that has not been tried; false: none is left
  void take_turns();                 // all over again
  // By when a dial that opens the link is given up: each address that is left has a part, since one may lead nowhere.
  [[nodiscard]] TimePoint opening_limit(TimePoint now) const;

  // A dial of the control connection met no listener; true: at none of the addresses, and twice.
  [[nodiscard]] bool port_refused();
  void port_answers() { refused_ports_ = 0; }

  // Of the connection at this index. One that lived long is redialled at once; one that flaps is not redialled without
  // a pause, but well before the listener takes us for dead.
  void lived(std::size_t index, Duration time);
  // True: at once; else it is due in a while. `jitter` is about 1.
  [[nodiscard]] bool plan(std::size_t index, TimePoint now, double jitter);
  void dialled(std::size_t index) { entry(index).at = kNever; }
  [[nodiscard]] bool planned(std::size_t index) { return entry(index).at != kNever; }
  [[nodiscard]] bool due(std::size_t index, TimePoint now) { return entry(index).at <= now; }

 private:
  struct Entry {
    TimePoint at = kNever;
    Duration back_off{0};
  };
  Entry& entry(std::size_t index);

  Endpoints endpoints_;
  std::size_t next_ = 0;
  TimePoint open_by_ = kNever;
  int refused_ports_ = 0;  // in a row
  std::vector<Entry> entries_;
};

}  // namespace collab::tcp
