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
  void set(double bytes_per_second, TimePoint now);  // from now on
  [[nodiscard]] double rate() const { return rate_; }
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
  [[nodiscard]] Duration value() const { return std::min(now_, before_); }

 private:
  Duration now_ = Duration::max(), before_ = Duration::max();
  TimePoint since_{};
};

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

// Whether a line that carried data has fallen silent: some is on its way, and for longer than a round trip nothing of
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

// What the links of a site are all still to send, and at what rate: says how much longer than all of them together one
// needs, as a part of that. Below 0: it is ahead of them; one alone is neither.
class Remaining {
 public:
  void add(double bytes, double line) {
    if (line <= 0) return;  // not known
    bytes_ += bytes;
    lines_ += line;
  }
  [[nodiscard]] double behind(double bytes, double line) const {
    return line > 0 && bytes_ > 0 ? bytes / line / (bytes_ / lines_) - 1 : 0;
  }

 private:
  double bytes_ = 0, lines_ = 0;
};

// The rate at which the data connections of a link together keep the line busy with a short queue before it. Congestion
// control by itself does not: what looks at losses fills the queue first, and several flows of BBR (version 1) each
// hold to the most they have ever had, so that together they keep the queue full and lose packets there (Hock, Bless,
// Zitterbart, "Experimental evaluation of BBR congestion control", ICNP 2017); data on the way back then makes it
// worse.
//
// As in LEDBAT (RFC 6817) the queue is what the way out takes beyond its shortest, and the pace leans towards a target:
// with a queue, what arrives is what the line carries; the rate is that, a little more while the queue is below the
// target and less above. Without one the rate grows, faster and faster, while what arrives follows. Time is cut into
// epochs of a round trip, or of some packets where that is longer. Until a queue has been seen there is no limit, and
// again once next to nothing arrives, as in a black hole.
//
// Links that share a line know nothing of each other, and each keeps the part that it begins an exchange with. So it
// begins with the mean of its line over the whole of the last one: what others had left to it at their end is not all
// its own, and a link that was done early leaves more to others. And within an exchange a link that is ahead of
// the others bears a shorter queue than they do: of those that share a queue the more patient get more of the line. So
// all are done together.
class LinkPace {
 public:
  struct Sight {                  // of all data connections, now
    std::uint64_t delivered = 0;  // bytes that have arrived in all
    std::uint64_t resent = 0;     // bytes that were sent again, in all
    Duration round_trip{0};       // the shortest of those at work; 0: none is
    // The newest time to the peer, in clocks that differ by a constant: not held up by a queue on the way back.
    std::optional<Duration> way_out;
    bool backlogged = false;  // data has been waiting to be sent since the last call
    double behind = 0;        // of all links with data, see Remaining
  };
  // Called about every tick; returns rate().
  double observe(TimePoint now, const Sight& sight);
  // An exchange of all links has ended: this one had data to send for `share` of it.
  void exchange_ended(double share);
  // There are no connections: what is known of the line stays, what goes on now tells nothing of it.
  void pause() { measuring_ = false; }
  [[nodiscard]] double rate() const { return rate_; }  // bytes a second; 0: no limit
  [[nodiscard]] double line() const { return line_; }  // what it carries of ours; 0: not known
  [[nodiscard]] bool sees_queue() const;               // or cannot tell

 private:
  void begin_epoch(TimePoint now, const Sight& sight);
  void end_epoch(TimePoint now, double took, double delivered, double carried);
  void find(double delivered);
  void follow(double delivered, double carried);
  [[nodiscard]] Duration epoch() const;
  [[nodiscard]] double queue() const;   // seconds
  [[nodiscard]] double target() const;  // of it

  double rate_ = 0;
  double line_ = 0;                  // what it carries, as far as is known
  double lines_ = 0, measured_ = 0;  // line_ times seconds, and these seconds, in this exchange
  double before_ = 0;                // rate_ in the epoch before: what arrives in this one
  double last_delivered_ = 0;
  double step_ = 0;
  double patience_ = 1;  // with the queue, see Sight::behind
  int full_ = 0;         // epochs with a queue, before there is a rate
  bool measuring_ = false;
  TimePoint settled_{};
  TimePoint drained_{};
  TimePoint since_{};
  std::uint64_t delivered_since_ = 0, resent_since_ = 0;
  Duration round_trip_{0};
  Shortest shortest_round_trip_, shortest_way_out_;
  std::optional<Duration> way_out_, way_out_before_;  // the shortest of this epoch and of the one before
};

// Hill climbing on goodput while there is a backlog: doubles the connections while that brings a twentieth more, goes
// back one step when it does not, and looks again when goodput has changed by a third since. Chance losses may hide a
// gain: so it looks again, too, while no queue is seen before the line, but seldom and more seldom, and wants to see
// more for it, compared with all that was measured since.
//
//   settled ──goodput changed, or the line is not full──▶ growing ──no gain──▶ settled (at the number before)
class ConnectionSearch {
 public:
  ConnectionSearch(std::uint16_t start, std::uint16_t most) : wanted_(start), most_(most) {}
  // `bytes` have arrived at the peer in all; `backlogged`: data has been waiting to be sent since the last call;
  // `attached` connections are there; `queue`: there is one before the line, or nobody can tell. Called about every
  // tick; returns the number of data connections wanted.
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
  bool uncertain_ = false;           // nothing has changed, and yet it looks
};

}  // namespace collab::tcp
