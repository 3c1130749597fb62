// Bounds the rate of something: log lines and events that strangers can cause, requests that they send.
//
// Threads: one caller at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "collab/clock.h"

namespace collab {

// A token bucket: allows `at_once` units (lines, bytes, requests) at once, then `a_second` per second.
class RateLimit {
 public:
  RateLimit(double at_once, double a_second) : at_once_(at_once), a_second_(a_second), left_(at_once) {}
  explicit RateLimit(Duration every) : RateLimit(1, 1 / std::chrono::duration<double>(every).count()) {}

  // How many were held back since the last one allowed; nothing if this one is held back.
  [[nodiscard]] std::optional<std::uint64_t> allow(TimePoint now, double cost = 1) {
    if (would_allow(now, cost)) return spend(cost);
    keep_back();
    return std::nullopt;
  }
  // `line`, with the number of lines held back since the last one; nothing if this line is held back.
  [[nodiscard]] std::optional<std::string> allow(TimePoint now, std::string line) {
    const std::optional<std::uint64_t> others = allow(now);
    if (!others) return std::nullopt;
    if (*others > 0) line += " (and " + std::to_string(*others) + " others since the last such line)";
    return line;
  }
  // Whether `cost` is allowed now. A cost above `at_once` is allowed once the bucket is full.
  [[nodiscard]] bool would_allow(TimePoint now, double cost) {
    left_ = left(now);
    last_ = now;
    return left_ + kRounding >= std::min(cost, at_once_);
  }
  [[nodiscard]] double left(TimePoint now) const {
    return std::min(at_once_, left_ + a_second_ * std::chrono::duration<double>(now - last_).count());
  }
  std::uint64_t spend(double cost) {
    left_ -= cost;
    return std::exchange(kept_back_, 0);
  }
  void keep_back() { ++kept_back_; }

 private:
  static constexpr double kRounding = 1e-9;  // tokens that come back in several steps must add up
  double at_once_, a_second_, left_;
  TimePoint last_{};
  std::uint64_t kept_back_ = 0;
};

}  // namespace collab
