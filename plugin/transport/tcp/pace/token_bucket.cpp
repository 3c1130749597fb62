#include "transport/tcp/pace/token_bucket.h"

#include <algorithm>

namespace collab::tcp {
namespace {

double burst_of(double rate) { return std::max(rate / 20, 128.0 * 1024); }

}  // namespace

TokenBucket::TokenBucket(double bytes_per_second)
    : rate_(bytes_per_second), burst_(burst_of(bytes_per_second)), tokens_(burst_) {}

void TokenBucket::set(double bytes_per_second, TimePoint now) {
  if (!capped()) {
    *this = TokenBucket(bytes_per_second);
    return;
  }
  refill(now);
  rate_ = bytes_per_second;
  burst_ = burst_of(rate_);
  tokens_ = std::min(tokens_, burst_);
}

void TokenBucket::refill(TimePoint now) {
  if (started_ && now > last_) tokens_ = std::min(burst_, tokens_ + rate_ * seconds_of(now - last_));
  last_ = now;
  started_ = true;
}

bool TokenBucket::open(TimePoint now) {
  if (!capped()) return true;
  refill(now);
  return tokens_ > 0;
}

void TokenBucket::take(std::uint64_t bytes) {
  if (capped()) tokens_ -= static_cast<double>(bytes);
}

TimePoint TokenBucket::opens_at(TimePoint now) const {
  if (!capped() || tokens_ > 0) return now;
  const double wait = (1 - tokens_) / rate_;
  return now + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wait)) + std::chrono::milliseconds(1);
}

}  // namespace collab::tcp
