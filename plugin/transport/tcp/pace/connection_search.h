// Finds the number of data connections with the best goodput.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collab/clock.h"

namespace collab::tcp {

// Hill climbing on goodput while there is a backlog. It doubles the connections as long as that gains a twentieth, and
// otherwise goes back one step. It searches again once goodput has changed by a third. Random losses may hide a gain.
// So it also searches again while no queue is seen before the line, but less and less often. Such a search requires a
// larger gain over the mean goodput of these measurements.
//
//   settled ──goodput changed, or the line is not full──▶ growing ──no gain──▶ settled (at the number before)
class ConnectionSearch {
 public:
  ConnectionSearch(std::uint16_t start, std::uint16_t most) : wanted_(start), most_(most) {}
  // `bytes`: total that has arrived at the peer. `backlogged`: data has waited to be sent since the last call.
  // `attached`: the number of attached data connections. `queue`: the line has a queue, or that is not known. Call
  // about every tick. Returns the number of data connections wanted.
  std::uint16_t observe(TimePoint now, std::uint64_t bytes, bool backlogged, Duration round_trip,
                        std::uint16_t attached, bool queue);
  [[nodiscard]] std::uint16_t wanted() const { return wanted_; }
  void at_most(std::uint16_t most) {
    most_ = std::min(most_, most);
    wanted_ = std::min(wanted_, most_);
  }

 private:
  void judge(double goodput, bool full);
  [[nodiscard]] bool look_again(double goodput, bool full);
  std::uint16_t wanted_;
  std::uint16_t most_;
  bool growing_ = true;
  std::uint16_t before_ = 0;   // connections at the last measurement; 0: none yet
  double goodput_before_ = 0;  // goodput at that measurement
  bool measuring_ = false;
  TimePoint since_{};
  std::uint64_t bytes_since_ = 0;
  int looks_ = 0, queues_ = 0;       // calls in this measurement, in all and with a queue
  int not_full_ = 0, patience_ = 0;  // measurements in a row without a queue; how many to wait for
  double not_full_goodput_ = 0;      // the sum of their goodputs
  bool uncertain_ = false;           // this search was not caused by a change of goodput
};

}  // namespace collab::tcp
