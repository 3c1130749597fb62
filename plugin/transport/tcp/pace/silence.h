// When a line that carried data has fallen silent.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <cstdint>

#include "collab/clock.h"

namespace collab::tcp {

// Whether a line that carried data has fallen silent: some data is on its way, and for longer than a round trip none of
// it has been heard to arrive. What goes out then would most likely be lost with the rest.
class Silence {
 public:
  // `delivered` bytes are known to have arrived in all; `in_flight`: some are on their way. Called about every tick.
  [[nodiscard]] bool observe(TimePoint now, std::uint64_t delivered, bool in_flight, Duration round_trip);
  void forget() { flowing_ = false; }

 private:
  std::uint64_t delivered_ = 0;
  TimePoint heard_{};
  bool flowing_ = false;  // something has arrived since data was put on its way
};

}  // namespace collab::tcp
