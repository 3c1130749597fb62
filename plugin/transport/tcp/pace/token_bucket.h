// Enforces a user's cap on a rate.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

#include <cstdint>

#include "collab/clock.h"

namespace collab::tcp {

// Lets `bytes_per_second` through on average. A burst may last a twentieth of a second, or have 128 KiB if that is
// more. Rate 0: no cap.
class TokenBucket {
 public:
  explicit TokenBucket(double bytes_per_second);
  void set(double bytes_per_second, TimePoint now);  // from now on
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] bool capped() const { return rate_ > 0; }
  // Whether bytes may pass now. A batch passes whole, and puts the bucket into debt if it is larger than the contents.
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
