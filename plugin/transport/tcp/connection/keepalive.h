// When a connection was asked for a sign of life, and when it gave one; and what the other side asks.
//
// Threads: the transport's IO thread. Ownership: plain values, a connection's own; the engine's Liveness decides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "collab/clock.h"

namespace collab::tcp {

// What a ping carries: when it was sent.
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
  // How long the answer to the ping with this stamp took; nothing when it is not the one that is waited for.
  [[nodiscard]] std::optional<Duration> answered(TimePoint now, std::uint64_t stamp) {
    if (!asked_ || stamp_of(*asked_) != stamp) return std::nullopt;
    const Duration took = now - *asked_;
    asked_.reset();
    return took;
  }
  // The other side asks: of several in a row the last is to be answered, so that asking without end makes no work.
  struct Question {
    std::uint64_t stamp = 0;
    TimePoint came;
  };
  void asked_for_one(std::uint64_t stamp, TimePoint now) { question_ = {stamp, now}; }
  [[nodiscard]] std::optional<Question> take_question() { return std::exchange(question_, std::nullopt); }
  [[nodiscard]] bool answer_due() const { return asked_.has_value(); }
  [[nodiscard]] bool may_ask(TimePoint now) const { return now >= next_; }
  [[nodiscard]] Duration quiet(TimePoint now) const { return now - heard_; }
  // Since it was asked, and heard last.
  [[nodiscard]] Duration silent(TimePoint now) const { return now - std::max(heard_, asked_.value_or(heard_)); }

 private:
  TimePoint next_ = kNever;
  TimePoint heard_{};
  std::optional<TimePoint> asked_;
  std::optional<Question> question_;
};

}  // namespace collab::tcp
