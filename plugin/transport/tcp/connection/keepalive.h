// When a connection was last pinged, when it was last heard, and which ping of the other side waits for an answer.
//
// Threads: the transport's IO thread. Ownership: plain values, a connection's own; the engine's Liveness decides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "collab/clock.h"

namespace collab::tcp {

// The content of a ping: the time at which it was sent.
[[nodiscard]] inline std::uint64_t stamp_of(TimePoint time) {
  return static_cast<std::uint64_t>(time.time_since_epoch().count());
}

class Keepalive {
 public:
  void ask(TimePoint now, Duration heartbeat) {
    next_ = now + heartbeat;
    asked_ = now;
  }
  void heard(TimePoint now) { heard_ = now; }
  // How long the answer to the ping with this stamp took. Nothing if no ping with this stamp waits for an answer.
  [[nodiscard]] std::optional<Duration> answered(TimePoint now, std::uint64_t stamp) {
    if (!asked_ || stamp_of(*asked_) != stamp) return std::nullopt;
    const Duration took = now - *asked_;
    asked_.reset();
    return took;
  }
  // A ping of the other side. Of several in a row, only the last is answered, so that a flood of pings makes no work.
  struct Question {
    std::uint64_t stamp = 0;
    TimePoint came;
  };
  void asked_for_one(std::uint64_t stamp, TimePoint now) { question_ = {stamp, now}; }
  [[nodiscard]] std::optional<Question> take_question() { return std::exchange(question_, std::nullopt); }
  [[nodiscard]] bool answer_due() const { return asked_.has_value(); }
  [[nodiscard]] bool may_ask(TimePoint now) const { return now >= next_; }
  [[nodiscard]] Duration quiet(TimePoint now) const { return now - heard_; }
  // The time since the last ping went out or the peer was last heard, whichever came later.
  [[nodiscard]] Duration silent(TimePoint now) const { return now - std::max(heard_, asked_.value_or(heard_)); }

 private:
  TimePoint next_ = kNever;
  TimePoint heard_{};
  std::optional<TimePoint> asked_;
  std::optional<Question> question_;
};

}  // namespace collab::tcp
