// The pace that fills a line without filling its queue.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <cstdint>
#include <optional>

#include "collab/clock.h"
#include "transport/tcp/pace/queue_delay.h"

namespace collab::tcp {

// The mean rate of a line over the measured time.
class MeanRate {
 public:
  void note(double rate, double seconds) {
    bytes_ += rate * seconds;
    seconds_ += seconds;
  }
  void forget() { bytes_ = seconds_ = 0; }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] double value() const { return bytes_ / seconds_; }

 private:
  double bytes_ = 0, seconds_ = 0;
};

// The rate at which the data connections of a link together keep the line busy, with a short queue before it.
// Congestion control by itself does not do that. A loss-based one fills the queue first. Several flows of BBR (version
// 1) each keep the highest rate they have ever had. Together they keep the queue full and lose packets there (Hock,
// Bless, Zitterbart, "Experimental evaluation of BBR congestion control", ICNP 2017). Data on the way back makes that
// worse.
//
// As in LEDBAT (RFC 6817), the queue is the one-way delay beyond its shortest value, and the pace steers it towards a
// target. With a queue, the rate of arrivals is the line's rate. The pace is this rate, a little more while the queue
// is below the target and a little less above it. Without a queue the pace grows, faster and faster, as long as
// arrivals keep up. Time is cut into epochs of a round trip, or of some packets if that is longer. Until a queue has
// been seen there is no limit. The same holds once almost nothing arrives, as in a black hole.
//
// Links that share a line do not coordinate, and each keeps the share of it that it starts an exchange with. Two rules
// make all links finish together:
// - A link starts an exchange at its mean rate over the whole of the last one. Its rate at the end of that one would be
//   too much, because links that had finished left their share to it.
// - A link that is ahead of the others has a shorter target queue, which leaves more of the line to those behind.
class LinkPace {
 public:
  struct PathSample {             // of all data connections, at this moment
    std::uint64_t delivered = 0;  // bytes that have arrived in all
    std::uint64_t resent = 0;     // bytes that were sent again, in all
    Duration round_trip{0};       // the shortest of the connections at work; 0: none
    // The latest one-way delay, plus the constant by which the two clocks differ. It excludes queues on the way back.
    std::optional<Duration> one_way_delay;
    bool backlogged = false;  // data has been waiting to be sent since the last call
    double behind = 0;        // see Remaining::behind()
  };
  // Called about every tick; returns rate().
  double observe(TimePoint now, const PathSample& path_sample);
  // An exchange of all links has ended. This link had data to send for `share` of it.
  void exchange_ended(double share);
  // Call while there are no connections. Keeps the measurements of the line and takes no new ones.
  void pause() { measuring_ = false; }
  [[nodiscard]] double rate() const { return rate_; }  // bytes a second; 0: no limit
  [[nodiscard]] double line() const { return line_; }  // what the line carries for this link; 0: not known
  [[nodiscard]] bool sees_queue() const;               // true also if it cannot tell

 private:
  void begin_epoch(TimePoint now, const PathSample& path_sample);
  void end_epoch(TimePoint now, double took, double delivered, double carried);
  void find(double delivered);
  void follow(double delivered, double carried);
  [[nodiscard]] Duration epoch() const;
  [[nodiscard]] double target() const;  // of the queue, in seconds

  double rate_ = 0;
  double line_ = 0;    // what the line carries, as far as known
  MeanRate lines_;     // line_ in this exchange
  double before_ = 0;  // rate_ of the previous epoch, whose data arrives in this one
  double last_delivered_ = 0;
  double step_ = 0;
  double patience_ = 1;  // factor on the target queue, see PathSample::behind
  int full_ = 0;         // epochs with a queue, before there is a rate
  bool measuring_ = false;
  TimePoint settled_{};
  TimePoint drained_{};
  TimePoint since_{};
  std::uint64_t delivered_since_ = 0, resent_since_ = 0;
  QueueDelay queue_;
};

}  // namespace collab::tcp
