// For how much of an exchange a link had data to send.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include "collab/clock.h"

namespace collab::tcp {

// For how long data has waited to be sent, in the exchange under way: on one link, or on any of them.
class Backlog {
 public:
  void note(TimePoint now, bool waiting);  // every tick
  // Some has waited, and none does for a while: the exchange has ended.
  [[nodiscard]] bool over(TimePoint now) const;
  // Of that of all, at the end of an exchange; counts anew.
  [[nodiscard]] double take_share(const Backlog& of);

 private:
  TimePoint noted_{}, seen_{};
  Duration lasted_{0};
};

}  // namespace collab::tcp
