// A line with a fixed rate and a bounded queue before it, in virtual time.
//
// A packet that arrives at a free line starts at once. Otherwise it queues. A packet that does not fit is dropped. The
// line's times depend only on packets and rate: a late call changes nothing. Threads: one owner.
// Ownership: owns the packets in it.
#pragma once

#include <deque>
#include <utility>

#include "tools/lab/spec.h"

namespace collab::lab {

// A packet on its way through the network.
struct Transit {
  Packet packet;
  HostIndex from = 0;
  HostIndex to = 0;
};

class Line {
 public:
  Line(Rate rate, Time queue) : rate_(rate), queue_(queue) {}

  // False: the queue is full and the packet is dropped.
  [[nodiscard]] bool push(Time now, Transit&& transit);
  // When the first packet will have passed completely; kNever if there is none.
  [[nodiscard]] Time next() const { return waiting_.empty() ? kNever : head_done_; }
  // Removes the first packet, at time next(). The packet behind it starts.
  [[nodiscard]] Transit pop();
  // The packet on the line sends its remaining bytes at the new rate.
  void set_rate(Time now, Rate rate);

  [[nodiscard]] Rate rate() const { return rate_; }

 private:
  // Every queue holds at least a few packets, however slow its line.
  static constexpr std::size_t kLeastQueueBytes = std::size_t{10} * 1500;
  [[nodiscard]] std::size_t queue_bytes() const;

  Rate rate_;
  Time queue_;
  std::deque<Transit> waiting_;  // the first one is on the line
  std::size_t queued_bytes_ = 0;
  Time head_done_ = Time::zero();
};

}  // namespace collab::lab
