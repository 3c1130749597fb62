// How fast, and over how many connections: a token bucket for the user's caps, and the search for the number of data
// connections that moves the most.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collab/clock.h"

namespace collab::tcp {

// Lets `bytes_per_second` through on average; a burst may be a twentieth of a second, at least 128 KiB. Rate 0: no cap.
class TokenBucket {
 public:
  explicit TokenBucket(double bytes_per_second);
  [[nodiscard]] bool capped() const { return rate_ > 0; }
  // Some bytes may pass now. What passes is taken whole, into debt if need be.
  [[nodiscard]] bool open(TimePoint now);
  void take(std::uint64_t bytes);
  [[nodiscard]] TimePoint opens_at(TimePoint now) const;

 private:
  void refill(TimePoint now);
  double rate_;
  double burst_;
  double tokens_;
  TimePoint last_{};
  bool started_ = false;
};

// Hill climbing on goodput while there is a backlog: doubles the connections while that brings a tenth more, goes back
// one step when it does not, and looks again when goodput has changed by a third since.
//
//   settled ──goodput changed──▶ growing ──no gain──▶ settled (at the number before)
class ConnectionSearch {
 public:
  ConnectionSearch(std::uint16_t start, std::uint16_t most) : wanted_(start), most_(most) {}
  // `bytes` have arrived at the peer in all; `backlogged`: data has been waiting to be sent since the last call;
  // `attached` connections are there. Called about every tick; returns the number of data connections wanted.
  std::uint16_t observe(TimePoint now, std::uint64_t bytes, bool backlogged, Duration round_trip,
                        std::uint16_t attached);
  [[nodiscard]] std::uint16_t wanted() const { return wanted_; }
  void at_most(std::uint16_t most) {
    most_ = std::min(most_, most);
    wanted_ = std::min(wanted_, most_);
  }

 private:
  void judge(double goodput);
  std::uint16_t wanted_;
  std::uint16_t most_;
  bool growing_ = true;
  std::uint16_t before_ = 0;   // connections at the last measurement; 0: none yet
  double goodput_before_ = 0;  // then
  bool measuring_ = false;
  TimePoint since_{};
  std::uint64_t bytes_since_ = 0;
};

}  // namespace collab::tcp
