#include "transport/tcp/tcp_pace.h"

#include <algorithm>
#include <utility>

namespace collab::tcp {
namespace {

constexpr double kGain = 1.05;
constexpr double kChange = 1.33;
constexpr Duration kShortest = std::chrono::milliseconds(500);
constexpr int kRoundTrips = 10;  // slow start needs some before a new connection counts

// Of a link's pace.
constexpr Duration kShortestEpoch = std::chrono::milliseconds(40);
constexpr Duration kLeastQueue = std::chrono::milliseconds(10);
constexpr Duration kMemory = std::chrono::seconds(10);
constexpr double kFirstStep = 0.01;
constexpr double kBoldStep = 0.1;           // while little is known
constexpr double kLeastRate = 16.0 * 1024;  // bytes a second
constexpr double kSlower = 0.75;
constexpr double kForget = 0.95;
constexpr double kLongestStep = 0.25;
constexpr double kStepGrowth = 1.6;
constexpr double kFollows = 0.93;    // of what was sent: the line keeps up
constexpr double kLeastRatio = 0.8;  // a line that loses more is taken for a full one
constexpr double kMostHeadroom = 2;
constexpr double kDeepest = 0.3;  // of the rate, given up to drain
constexpr double kStillGrows = 1.2;
constexpr int kFullEpochs = 2;
constexpr int kDrainEpochs = 2;
constexpr int kMostInVain = 2;

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

// ---- LinkPace ------------------------------------------------------------------------------------

void Shortest::note(TimePoint now, Duration time) {
  if (now - since_ > kMemory) {
    before_ = now_;
    now_ = time;
    since_ = now;
  }
  now_ = std::min(now_, time);
}

Duration LinkPace::threshold() const { return std::max(kLeastQueue, shortest_round_trip_.value() / 10); }

double LinkPace::headroom() const {
  if (rate_ == 0 || last_arrived_ == 0) return 1;
  return std::clamp(ratio_ * rate_ / last_arrived_, 1.0, kMostHeadroom);
}

Duration LinkPace::queue() const {
  const Duration both_ways = round_trip_ - shortest_round_trip_.value();
  const std::optional<Duration> way = way_out_ ? way_out_ : way_out_before_;
  return way ? std::min(both_ways, *way - shortest_way_out_.value()) : both_ways;
}

void LinkPace::begin_epoch(TimePoint now, const Sight& sight) {
  since_ = now;
  delivered_since_ = sight.delivered;
  resent_since_ = sight.resent;
}

double LinkPace::observe(TimePoint now, const Sight& sight) {
  if (sight.round_trip != Duration(0)) {
    round_trip_ = sight.round_trip;
    shortest_round_trip_.note(now, sight.round_trip);
  }
  if (sight.way_out) {
    shortest_way_out_.note(now, *sight.way_out);
    way_out_ = std::min(way_out_.value_or(*sight.way_out), *sight.way_out);
  }
  if (!sight.backlogged || sight.round_trip == Duration(0)) {
    measuring_ = false;
    return rate_;
  }
  if (!measuring_) {
    // Round trips are old news, and nothing has arrived yet.
    measuring_ = true;
    settled_ = now + 2 * sight.round_trip;
    rate_ = std::min(rate_, most_ / ratio_);  // not into a queue at once
    before_ = rate_;
    last_arrived_ = 0;
    way_out_.reset();
    way_out_before_.reset();
    begin_epoch(now, sight);
    return rate_;
  }
  if (now < settled_) {
    begin_epoch(now, sight);
    return rate_;
  }
  if (now - since_ < std::max(kShortestEpoch, round_trip_)) return rate_;
  const double time = seconds(now - since_);
  const auto delivered = static_cast<double>(sight.delivered - delivered_since_);
  const double sent = rate_;
  if (phase_ == Phase::kGrowing && queue() <= threshold() && delivered > 0) {
    // Losses where nothing is full.
    const double share = delivered / (delivered + static_cast<double>(sight.resent - resent_since_));
    ratio_ = std::max(kLeastRatio, ratio_ + (share - ratio_) / 8);
  }
  begin_epoch(now, sight);
  end_epoch(delivered / time);
  before_ = sent;
  last_arrived_ = delivered / time;
  if (way_out_) way_out_before_ = std::exchange(way_out_, std::nullopt);
  return rate_;
}

void LinkPace::end_epoch(double arrived) {
  ++epochs_;
  const bool queued = queue() > threshold();
  if (!queued) in_vain_ = 0;
  switch (phase_) {
    case Phase::kFree:
      if (!queued || arrived > kStillGrows * last_arrived_) {
        epochs_ = 0;
      } else if (epochs_ >= kFullEpochs) {
        drain(std::max(arrived, last_arrived_));
      }
      return;
    case Phase::kDraining: go_on_draining(arrived); return;
    case Phase::kHolding:
      phase_ = Phase::kGrowing;
      epochs_ = 0;
      // The first finding may be of another's queue, and a sudden fall of a machine that stood still.
      step_ = findings_ < 2 || line_ < kSlower * most_ ? kBoldStep : kFirstStep;
      return;
    case Phase::kGrowing: break;
  }
  if (!queued) {
    grow(arrived);
  } else if (++in_vain_ > kMostInVain) {
    shortest_round_trip_.forget(round_trip_);
    if (way_out_) shortest_way_out_.forget(*way_out_);
    in_vain_ = 0;
  } else {
    drain(std::max(arrived, last_arrived_));
  }
}

void LinkPace::drain(double arrived) {
  phase_ = Phase::kDraining;
  epochs_ = 0;
  line_ = std::max(arrived, kLeastRate);
  // Half of what counts as a queue stays, lest the line stands idle.
  const double surplus = seconds(queue() - threshold() / 2);
  const double time = kDrainEpochs * seconds(std::max(kShortestEpoch, round_trip_));
  rate_ = line_ / ratio_ * (1 - std::min(kDeepest, surplus / time));
}

// What arrives in the first of these epochs was sent before it. Little, and the queue is still there: the line became
// slower. Little, and it is gone: the machine stood still.
void LinkPace::go_on_draining(double arrived) {
  if (epochs_ == 1) {
    const bool little = arrived < kSlower * line_;
    if (!little) line_ = (line_ + arrived) / 2;
    if (little && queue() > threshold()) line_ = std::max(arrived, kLeastRate);
  }
  if (epochs_ < kDrainEpochs) {
    rate_ = std::min(rate_, line_ / ratio_);
    return;
  }
  phase_ = Phase::kHolding;
  epochs_ = 0;
  rate_ = line_ / ratio_;
  most_ = std::max(line_, kForget * most_);
  findings_ = std::min(findings_ + 1, 2);
}

void LinkPace::grow(double arrived) {
  if (arrived < kFollows * ratio_ * before_) {
    step_ = kFirstStep;
    return;
  }
  line_ = std::max(line_, arrived);
  most_ = std::max(most_, arrived);
  rate_ *= 1 + step_;
  step_ = std::min(step_ * kStepGrowth, kLongestStep);
}

// ---- ConnectionSearch ----------------------------------------------------------------------------

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
