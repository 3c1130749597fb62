// How many data connections of a link move the most.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collab/clock.h"

namespace collab::tcp {

// Hill climbing on goodput while there is a backlog. It doubles the connections while that brings a twentieth more, and
// goes back one step if it does not. It looks again when goodput has changed by a third since. Chance losses may hide a
// gain. So it also looks again while no queue is seen before the line, but less and less often. Then it wants to see a
// larger gain, compared with all that was measured since.
//
//   settled ──goodput changed, or the line is not full──▶ growing ──no gain──▶ settled (at the number before)
class ConnectionSearch {
 public:
  ConnectionSearch(std::uint16_t start, std::uint16_t most) : wanted_(start), most_(most) {}
  // `bytes` have arrived at the peer in all. `backlogged`: data has waited to be sent since the last call. `attached`
  // connections are there. `queue`: there is one before the line, or that is not known. Called about every tick.
  // Returns the number of data connections wanted.
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
  double goodput_before_ = 0;  // then
  bool measuring_ = false;
  TimePoint since_{};
  std::uint64_t bytes_since_ = 0;
  int looks_ = 0, queues_ = 0;       // in this measurement
  int not_full_ = 0, patience_ = 0;  // measurements: since it settled, and before it looks again
  double not_full_goodput_ = 0;      // their sum
  bool uncertain_ = false;           // nothing has changed, but it looks
};

}  // namespace collab::tcp
