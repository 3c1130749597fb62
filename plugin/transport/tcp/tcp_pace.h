// How fast, and over how many connections: a token bucket for the user's caps, the pace that fills a line without
// filling its queue, and the search for the number of data connections that moves the most.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

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

// The shortest of what was noted lately: in ten to twenty seconds.
class Shortest {
 public:
  void note(TimePoint now, Duration time);
  void forget(Duration time) { now_ = before_ = time; }  // all but this one
  [[nodiscard]] Duration value() const { return std::min(now_, before_); }

 private:
  Duration now_ = Duration::max(), before_ = Duration::max();
  TimePoint since_{};
};

// The rate at which the data connections of a link together fill the line and not its queue. Congestion control by
// itself does not find it: what looks at losses fills the queue first, and several flows of BBR (version 1) each hold
// to the most they have ever had, so that together they keep the queue full and lose packets there (Hock, Bless,
// Zitterbart, "Experimental evaluation of BBR congestion control", ICNP 2017). As in TCP Vegas (Brakmo, Peterson, 1995)
// a queue of ours shows in the round trip; as in BBR the rate is that at which data arrived while it was there. Time is
// cut into epochs of a round trip:
//
//   free ──queue──▶ draining ──2 epochs──▶ holding ──1──▶ growing ──queue──▶ draining
//   no limit        the rate found, less    the rate       faster and faster, while what
//                   what empties the queue  found          arrives follows, 1 to 25 % an epoch
//
// A queue that stays though we drained twice is not ours: the way has become longer, or others fill it. Then the round
// trip that counts as empty is raised, so that we neither starve nor believe in a jitter.
class LinkPace {
 public:
  struct Sight {                  // of all data connections, now
    std::uint64_t delivered = 0;  // bytes that have arrived in all
    std::uint64_t resent = 0;     // bytes that were sent again, in all
    Duration round_trip{0};       // the shortest of those at work; 0: none is
    // The newest time to the peer, in clocks that differ by a constant: tells a queue on the way out from one on the
    // way back (LEDBAT, RFC 6817).
    std::optional<Duration> way_out;
    bool backlogged = false;  // data has been waiting to be sent since the last call
  };
  // Called about every tick; returns rate().
  double observe(TimePoint now, const Sight& sight);
  [[nodiscard]] double rate() const { return rate_; }  // bytes a second; 0: no limit
  // Connections with a small window just now use less than their share; the others may make up for it: what each share
  // of the rate is multiplied by, 1 to 2.
  [[nodiscard]] double headroom() const;

 private:
  enum class Phase : std::uint8_t { kFree, kDraining, kHolding, kGrowing };
  void begin_epoch(TimePoint now, const Sight& sight);
  void end_epoch(double arrived);
  void drain(double arrived);
  void go_on_draining(double arrived);
  void grow(double arrived);
  [[nodiscard]] Duration queue() const;
  [[nodiscard]] Duration threshold() const;  // of what counts as a queue

  Phase phase_ = Phase::kFree;
  double rate_ = 0;
  double line_ = 0;    // the rate found
  double most_ = 0;    // the most found lately
  int findings_ = 0;   // so far, 2 at most
  double before_ = 0;  // rate_ in the epoch before: what arrives in this one
  double last_arrived_ = 0;
  double ratio_ = 1;  // of what is sent, what arrives where nothing is full
  double step_ = 0;
  int epochs_ = 0;   // in this phase
  int in_vain_ = 0;  // drained, and the queue stayed
  bool measuring_ = false;
  TimePoint settled_{};
  TimePoint since_{};
  std::uint64_t delivered_since_ = 0, resent_since_ = 0;
  Duration round_trip_{0};
  Shortest shortest_round_trip_, shortest_way_out_;
  std::optional<Duration> way_out_, way_out_before_;  // the shortest of this epoch and of the one before
};

// Hill climbing on goodput while there is a backlog: doubles the connections while that brings a twentieth more, goes
// back one step when it does not, and looks again when goodput has changed by a third since.
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
