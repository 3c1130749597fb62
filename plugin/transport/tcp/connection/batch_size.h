// How much data a connection gets at once. A connection that drains quickly gets more each time. A slow one gets
// little, so that little data waits in it.
//
// Threads: one at a time. Ownership: plain values, a connection's own; the engine's Striping asks.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collab/clock.h"
#include "transport/tcp/session/tcp_outbox.h"

namespace collab::tcp {

inline constexpr std::size_t kMostFilled = 4 * kMaxSegmentBytes;

class BatchSize {
 public:
  // How much to send now, once the last batch has drained.
  [[nodiscard]] std::size_t next(TimePoint now) const {
    const Duration drained = now - sent_at_;
    if (drained < kQuick) return std::min(2 * bytes_, kMostFilled);
    return drained > kSlow ? kSmallSegmentBytes : bytes_;
  }
  // Call after data was sent. next() alone changes nothing, as idle connections are asked too.
  void sent(TimePoint now) {
    bytes_ = next(now);
    sent_at_ = now;
  }

 private:
  static constexpr Duration kQuick = std::chrono::milliseconds(5);
  static constexpr Duration kSlow = std::chrono::milliseconds(20);
  TimePoint sent_at_{};
  std::size_t bytes_ = kMaxSegmentBytes;
};

}  // namespace collab::tcp
