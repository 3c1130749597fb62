// What the caps of the user let through.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <cstdint>

#include "collab/clock.h"

namespace collab::tcp {

// Lets `bytes_per_second` through on average; a burst may be a twentieth of a second, at least 128 KiB. Rate 0: no cap.
class TokenBucket {
 public:
  explicit TokenBucket(double bytes_per_second);
  void set(double bytes_per_second, TimePoint now);  // from now on
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] bool capped() const { return rate_ > 0; }
  // Some bytes may pass now. They pass whole, into debt if need be.
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

}  // namespace collab::tcp
