// Where and when a link is redialled: its addresses in turn, with exponential backoff for each connection.
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
  void found(Endpoints endpoints);     // the result of the first look-up
  void found_anew(Endpoints current);  // stays at the current address if it is still among them
  [[nodiscard]] const Endpoint& to() const { return endpoints_[next_]; }
  [[nodiscard]] bool try_another();  // moves on to an untried address; false: none is left
  void take_turns();                 // moves on to the next address; the first one follows the last
  // When to give up a dial that opens the link. Each untried address gets a part of the time, as one may not answer.
  [[nodiscard]] TimePoint opening_limit(TimePoint now) const;

  // A dial of the control connection met no listener. True: no address had one, twice in a row.
  [[nodiscard]] bool port_refused();
  void port_answers() { refused_ports_ = 0; }

  // The connection at this index was up for `time`. A long-lived one is redialled at once. A flapping one is redialled
  // after a pause, but well before the listener takes us for dead.
  void lived(std::size_t index, Duration time);
  // Plans a redial. True: redial at once; otherwise due() tells when. `jitter` is a factor of about 1.
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
