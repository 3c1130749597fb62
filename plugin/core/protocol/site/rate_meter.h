// Estimates the rate of one direction of a site's line from the traffic of rounds. Nothing is sent just to measure.
//
// A round shows the speed of the line only while there is something to carry: a site that waits for others looks slow.
// So a round's sample is its best sustained rate, over windows of at least 300 ms and at least a quarter of the time
// from its first payload to its last. Shorter windows would measure what a buffer took, or what piled up behind a gap.
// If the meter is told when something is on its way, a line that was idle for a part of a window counts as that much
// faster, at most four times. Otherwise a line that only passes on what others send would look as slow as theirs. A
// round's sample raises the estimate at once and lowers it slowly.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "collab/clock.h"

namespace collab::protocol {

class RateMeter {
 public:
  static constexpr Duration kLeastWindow{300'000};
  static constexpr Duration kGrain{10'000};  // payloads this close to each other count as one
  static constexpr int kWindowsPerRound = 4;
  static constexpr int kMostIdle = 4;       // a window counts for at least this part of its length
  static constexpr double kFall = 1.0 / 8;  // of the way down to a lower sample

  // Makes a sample of what was seen since the last call, and begins a round.
  void begin_round();
  void add(TimePoint now, std::uint64_t bytes);  // that have arrived, or are known to have arrived at the other side
  // Something is on its way from now on, or nothing is. Without any call the meter assumes that something always is.
  void set_busy(TimePoint now, bool busy);
  // The estimate, including what was seen up to the last begin_round(). 0 if no round has lasted long enough yet.
  [[nodiscard]] std::uint32_t kbit_per_second() const;

 private:
  struct Mark {
    TimePoint at;
    std::uint64_t total = 0;
    Duration idle{};
  };
  [[nodiscard]] double sample() const;  // kbit/s; 0: none

  std::vector<Mark> marks_;
  TimePoint opened_{};  // when the last mark was opened
  Duration idle_{};
  TimePoint idle_since_ = kNever;
  double estimate_ = 0;
};

}  // namespace collab::protocol
