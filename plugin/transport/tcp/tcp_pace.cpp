#include "transport/tcp/tcp_pace.h"

#include <algorithm>

namespace collab::tcp {
namespace {

constexpr double kGain = 1.1;
constexpr double kChange = 1.33;
constexpr Duration kShortest = std::chrono::milliseconds(500);
constexpr int kRoundTrips = 10;  // slow start needs some before a new connection counts

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

TokenBucket::TokenBucket(double bytes_per_second)
    : rate_(bytes_per_second), burst_(std::max(bytes_per_second / 20, 128.0 * 1024)), tokens_(burst_) {}

void TokenBucket::refill(TimePoint now) {
  if (started_ && now > last_) tokens_ = std::min(burst_, tokens_ + rate_ * seconds(now - last_));
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

std::uint16_t ConnectionSearch::observe(TimePoint now, std::uint64_t bytes, bool backlogged, Duration round_trip,
                                        std::uint16_t attached) {
  if (!backlogged || attached < wanted_) {
    measuring_ = false;
    return wanted_;
  }
  if (!measuring_) {
    measuring_ = true;
    since_ = now;
    bytes_since_ = bytes;
    return wanted_;
  }
  const Duration time = now - since_;
  if (time < std::max(kShortest, kRoundTrips * round_trip)) return wanted_;
  judge(static_cast<double>(bytes - bytes_since_) / seconds(time));
  since_ = now;
  bytes_since_ = bytes;
  measuring_ = wanted_ <= attached;
  return wanted_;
}

void ConnectionSearch::judge(double goodput) {
  if (growing_ && before_ != 0 && goodput < kGain * goodput_before_) {
    growing_ = false;
    wanted_ = before_;
    return;  // what was measured before is what is had again
  }
  if (!growing_) {
    const bool changed = goodput > kChange * goodput_before_ || goodput * kChange < goodput_before_;
    if (!changed) return;
    growing_ = true;
  }
  before_ = wanted_;
  goodput_before_ = goodput;
  wanted_ = static_cast<std::uint16_t>(std::min<int>(2 * wanted_, most_));
  if (wanted_ == before_) growing_ = false;
}

}  // namespace collab::tcp
