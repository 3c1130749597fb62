// How long data waits in the queue before a line: the transit time above the shortest one seen lately.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "collab/clock.h"

namespace collab::tcp {

// The shortest time noted in the last ten to twenty seconds.
class Shortest {
 public:
  void note(TimePoint now, Duration time);
  [[nodiscard]] Duration value() const { return std::min(now_, before_); }

 private:
  Duration now_ = Duration::max(), before_ = Duration::max();
  TimePoint since_{};
};

class QueueDelay {
 public:
  // A round trip of 0: none was measured. `one_way_delay` includes the constant difference of the two clocks.
  void note(TimePoint now, Duration round_trip, std::optional<Duration> one_way_delay);
  // Forgets recent samples: data sent before now tells nothing about the line from now on.
  void begin_anew() { one_way_delay_ = one_way_delay_before_ = std::nullopt; }
  void end_epoch() { one_way_delay_before_ = std::exchange(one_way_delay_, std::nullopt); }

  [[nodiscard]] Duration round_trip() const { return round_trip_; }  // the newest
  [[nodiscard]] Duration shortest_round_trip() const { return shortest_round_trip_.value(); }
  [[nodiscard]] bool known() const {
    return round_trip_ != Duration(0) && shortest_round_trip_.value() != Duration::max();
  }
  [[nodiscard]] double seconds() const;

 private:
  Duration round_trip_{0};
  Shortest shortest_round_trip_, shortest_one_way_delay_;
  std::optional<Duration> one_way_delay_, one_way_delay_before_;  // the shortest of this epoch and of the one before
};

}  // namespace collab::tcp
