// Measures in which part of an exchange's time a link had data to send.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include "collab/clock.h"

namespace collab::tcp {

// How long data has waited to be sent in the current exchange, on one link or on any link.
class Backlog {
 public:
  void note(TimePoint now, bool waiting);  // every tick
  // True if data has waited, but none has for a while: the exchange is over.
  [[nodiscard]] bool over(TimePoint now) const;
  // Call at the end of an exchange. Returns this link's time as a part of the time of all links, and resets the count.
  [[nodiscard]] double take_share(const Backlog& of);

 private:
  TimePoint noted_{}, seen_{};
  Duration lasted_{0};
};

}  // namespace collab::tcp
