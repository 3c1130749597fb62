#include "transport/tcp/pace/connection_search.h"

#include <algorithm>

#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

constexpr double kGain = 1.05;
constexpr double kUncertainGain = 1.08;
constexpr double kChange = 1.33;
constexpr Duration kShortest = std::chrono::milliseconds(500);
constexpr int kRoundTrips = 10;                           // slow start takes some before a new connection counts
constexpr int kFirstPatience = 4, kLongestPatience = 64;  // measurements

}  // namespace

std::uint16_t ConnectionSearch::observe(TimePoint now, std::uint64_t bytes, bool backlogged, Duration round_trip,
                                        std::uint16_t attached, bool queue) {
  if (!backlogged || attached < wanted_) {
    measuring_ = false;
    return wanted_;
  }
  if (!measuring_) {
    measuring_ = true;
    since_ = now;
    bytes_since_ = bytes;
    looks_ = queues_ = 0;
    return wanted_;
  }
  ++looks_;
  queues_ += queue ? 1 : 0;
  const Duration time = now - since_;
  if (time < std::max(kShortest, kRoundTrips * round_trip)) return wanted_;
  judge(static_cast<double>(bytes - bytes_since_) / seconds_of(time), 2 * queues_ > looks_);
  since_ = now;
  bytes_since_ = bytes;
  looks_ = queues_ = 0;
  measuring_ = wanted_ <= attached;
  return wanted_;
}

void ConnectionSearch::judge(double goodput, bool full) {
  if (growing_ && before_ != 0 && goodput < (uncertain_ ? kUncertainGain : kGain) * goodput_before_) {
    growing_ = uncertain_ = false;
    wanted_ = before_;
    return;  // the earlier measurement is valid again
  }
  if (!growing_ && !look_again(goodput, full)) return;
  growing_ = true;
  before_ = wanted_;
  goodput_before_ = uncertain_ && not_full_ > 0 ? not_full_goodput_ / not_full_ : goodput;
  not_full_ = 0;
  not_full_goodput_ = 0;
  wanted_ = static_cast<std::uint16_t>(std::min<int>(2 * wanted_, most_));
  if (wanted_ == before_) growing_ = false;
}

bool ConnectionSearch::look_again(double goodput, bool full) {
  if (goodput > kChange * goodput_before_ || goodput * kChange < goodput_before_) {
    patience_ = 0;
    uncertain_ = false;
    return true;
  }
  if (off(Mechanism::kUnverifiedLook)) return false;
  not_full_ = full ? 0 : not_full_ + 1;
  not_full_goodput_ = full ? 0 : not_full_goodput_ + goodput;
  if (wanted_ == most_ || not_full_ < std::max(patience_, kFirstPatience)) return false;
  patience_ = std::min(2 * not_full_, kLongestPatience);
  return uncertain_ = true;
}

}  // namespace collab::tcp
