// How fast one link may send and receive, under the caps of both sides.
//
// Threads: the transport's IO thread. Ownership: plain values of a link. The engine's Caps decides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "transport/tcp/pace/token_bucket.h"

namespace collab::tcp {

class LinkCaps {
 public:
  // Sets the highest rate that the peer allows.
  void allow(double bytes_per_second, TimePoint now) { allowed_.set(bytes_per_second, now); }
  [[nodiscard]] double rate() const { return allowed_.rate(); }
  [[nodiscard]] bool capped() const { return allowed_.capped(); }
  [[nodiscard]] bool open(TimePoint now) { return allowed_.open(now); }
  [[nodiscard]] TimePoint opens_at(TimePoint now) const { return allowed_.opens_at(now); }
  void take(std::uint64_t bytes) { allowed_.take(bytes); }

  void data_received(TimePoint now) { data_received_ = now; }
  [[nodiscard]] bool sends(TimePoint now) const { return now - data_received_ < std::chrono::seconds(1); }
  // The allowance to announce to the peer under our own cap. Nothing if it has hardly changed.
  [[nodiscard]] std::optional<std::uint64_t> tell(double allowance) {
    const auto told = static_cast<double>(told_);
    if (std::abs(allowance - told) <= kWorthTelling * told) return std::nullopt;
    told_ = static_cast<std::uint64_t>(allowance);
    return std::max<std::uint64_t>(1, told_);
  }
  void forget_told() { told_ = 0; }

 private:
  static constexpr double kWorthTelling = 0.02;
  TokenBucket allowed_{0};
  std::uint64_t told_ = 0;  // last announced; 0: none yet
  TimePoint data_received_{};
};

}  // namespace collab::tcp
