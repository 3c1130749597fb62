// Where and when a link is dialled again: its addresses in turn, and a growing pause for each connection.
//
// Threads: the transport's IO thread. Ownership: plain values of a link. The engine's Dialler decides.
#pragma once

#include <cstddef>
#include <vector>

#include "collab/clock.h"
#include "transport/tcp/connection/tcp_socket.h"

namespace collab::tcp {

class Redial {
 public:
  // The link must be open by then.
  void begin(TimePoint open_by) { open_by_ = open_by; }
  [[nodiscard]] TimePoint open_by() const { return open_by_; }
  void found(Endpoints endpoints);     // looked up for the first time
  void found_anew(Endpoints current);  // the turn stays at the same address, if that is still there
  [[nodiscard]] const Endpoint& to() const { return endpoints_[next_]; }
  [[nodiscard]] bool try_another();  // an address that was not tried yet; false: none is left
  void take_turns();                 // begins with all addresses again
  // When a dial that opens the link is given up. Each address that is left has a part of the time, as one may lead
  // nowhere.
  [[nodiscard]] TimePoint opening_limit(TimePoint now) const;

  // A dial of the control connection met no listener. True: no address had one, twice in a row.
  [[nodiscard]] bool port_refused();
  void port_answers() { refused_ports_ = 0; }

  // For the connection at this index. One that lived long is redialled at once. One that flaps is redialled after a
  // pause, but well before the listener thinks that we are dead.
  void lived(std::size_t index, Duration time);
  // True: at once. Otherwise it is due in a while. `jitter` is about 1.
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
