#include "transport/tcp/tcp_pace.h"

#include <algorithm>
#include <utility>

namespace collab::tcp {
namespace {

constexpr double kGain = 1.05;
constexpr double kUncertainGain = 1.08;
constexpr double kChange = 1.33;
constexpr Duration kShortestSilence = std::chrono::milliseconds(100);
constexpr Duration kShortest = std::chrono::milliseconds(500);
constexpr int kRoundTrips = 10;                           // slow start needs some before a new connection counts
constexpr int kFirstPatience = 4, kLongestPatience = 64;  // measurements

// Of a link's pace.
constexpr Duration kShortestEpoch = std::chrono::milliseconds(50);
constexpr Duration kMemory = std::chrono::seconds(10);
constexpr Duration kDrainEvery = std::chrono::seconds(5);
constexpr double kTarget = 0.015;           // seconds of queue
constexpr double kTargetOfRoundTrip = 0.1;  // or this
constexpr double kNoQueue = 0.25;           // of the target
constexpr double kLongQueue = 3;            // targets
constexpr double kPatience = 15;            // of the target given up, by a link that needs half as long as the others
constexpr double kLeastPatience = 0.25;
constexpr double kHorizon = 4;                // epochs in which a deviation from the target is to be gone
constexpr double kLeast = 0.75, kMost = 1.1;  // of what the line carries
constexpr double kLeastRate = 32.0 * 1024;    // bytes a second
constexpr double kLeastOfEpoch = 16e3;        // bytes at the rate, so that packets can be counted
constexpr double kWeight = 1.0 / 8;           // of an epoch
constexpr double kFirstStep = 0.02, kStepGrowth = 1.6, kLongestStep = 0.25;
constexpr double kFollows = 0.9;   // of what was sent: the line keeps up
constexpr double kCarries = 0.95;  // the line carries all of it
constexpr double kSlower = 0.75;   // it does not by far
constexpr double kStillGrows = 1.2;
constexpr int kFullEpochs = 2;

// Of exchanges.
constexpr Duration kPause = std::chrono::milliseconds(500);        // between two, at least
constexpr Duration kLongestTick = std::chrono::milliseconds(250);  // beyond, nobody looked
constexpr double kTelling = 1.5;      // measured seconds: shorter ones tell of their climb only
constexpr double kLeastShare = 0.25;  // one slow link does not stop the others

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

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

Duration LinkPace::epoch() const {
  const Duration packets = rate_ > 0 ? Duration(static_cast<Duration::rep>(1e6 * kLeastOfEpoch / rate_)) : Duration(0);
  return std::max({kShortestEpoch, round_trip_, packets});
}

double LinkPace::target() const {
  return patience_ * std::max(kTarget, kTargetOfRoundTrip * seconds(shortest_round_trip_.value()));
}

// The smaller of two sights: a lost ping looks like a long way, data on the way back like a long round trip.
double LinkPace::queue() const {
  const Duration both_ways = round_trip_ - shortest_round_trip_.value();
  const std::optional<Duration> way = way_out_ ? way_out_ : way_out_before_;
  return seconds(way ? std::min(both_ways, *way - shortest_way_out_.value()) : both_ways);
}

bool LinkPace::sees_queue() const {
  return round_trip_ == Duration(0) || shortest_round_trip_.value() == Duration::max() ||
         queue() >= kNoQueue * target();
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
    rate_ = before_ = line_;
    drained_ = now;
    if (line_ > 0) last_delivered_ = 0;  // else what the line carries is still to be seen
    step_ = kFirstStep;
    way_out_.reset();
    way_out_before_.reset();
  }
  if (now < settled_) {
    begin_epoch(now, sight);
    return rate_;
  }
  if (now - since_ < epoch()) return rate_;
  const double time = seconds(now - since_);
  const auto delivered = static_cast<double>(sight.delivered - delivered_since_);
  const auto resent = static_cast<double>(sight.resent - resent_since_);
  const double sent = rate_;
  begin_epoch(now, sight);
  patience_ = std::clamp(1 + kPatience * sight.behind, kLeastPatience, 1.0);
  end_epoch(now, time, delivered / time, (delivered + resent) / time);
  before_ = sent;
  last_delivered_ = delivered / time;
  way_out_before_ = std::exchange(way_out_, std::nullopt);
  return rate_;
}

void LinkPace::end_epoch(TimePoint now, double took, double delivered, double carried) {
  if (rate_ == 0) {
    find(delivered);
    return;
  }
  follow(delivered, carried);
  if (line_ < kLeastRate) {
    line_ = rate_ = 0;
    lines_ = measured_ = 0;
    full_ = 0;
    return;
  }
  lines_ += line_ * took;
  measured_ += took;
  const double time = seconds(epoch());
  double lean = (target() - queue()) / (kHorizon * time);
  if (now - drained_ > kDrainEvery) {  // the shortest way stays known
    drained_ = now;
    lean = -queue() / time;
  }
  rate_ = line_ * std::clamp(1 + lean, kLeast, kMost);
}

void LinkPace::exchange_ended(double share) {
  if (measured_ > kTelling) line_ = std::max(kLeastRate, lines_ / measured_ * std::max(kLeastShare, share));
  lines_ = measured_ = 0;
}

void LinkPace::find(double delivered) {
  const bool full = queue() > target() && delivered < kStillGrows * last_delivered_;
  full_ = full ? full_ + 1 : 0;
  if (full_ < kFullEpochs) return;
  full_ = 0;
  const double most = std::max(delivered, last_delivered_);
  if (most >= kLeastRate) line_ = rate_ = most;
}

// What arrives tells what the line carries only where there is a queue, or where less arrives than was sent.
void LinkPace::follow(double delivered, double carried) {
  if (queue() < kNoQueue * target()) {
    if (delivered < kFollows * before_) {
      step_ = kFirstStep;
    } else {
      line_ *= 1 + step_;
      step_ = std::min(step_ * kStepGrowth, kLongestStep);
    }
    return;
  }
  step_ = kFirstStep;
  const double most = std::max(delivered, last_delivered_);
  if (queue() > kLongQueue * target() && most < kSlower * before_) {
    line_ = most;
  } else if (carried > line_ || delivered < kCarries * before_) {
    line_ += kWeight * (carried - line_);
  }
}

// ---- Silence ---------------------------------------------------------------------------------------

bool Silence::observe(TimePoint now, std::uint64_t delivered, bool in_flight, Duration round_trip) {
  if (std::exchange(delivered_, delivered) != delivered) {
    heard_ = now;
    flowing_ = true;
  }
  flowing_ = flowing_ && in_flight;
  return flowing_ && now - heard_ > std::max(kShortestSilence, round_trip + round_trip / 8);
}

// ---- Backlog ---------------------------------------------------------------------------------------

void Backlog::note(TimePoint now, bool waiting) {
  const TimePoint before = std::exchange(noted_, now);
  if (!waiting) return;
  if (before != TimePoint()) lasted_ += std::min(now - before, kLongestTick);
  seen_ = now;
}

bool Backlog::over(TimePoint now) const { return lasted_ > Duration(0) && now - seen_ > kPause; }

double Backlog::take_share(const Backlog& of) {
  const Duration lasted = std::exchange(lasted_, Duration(0));
  return of.lasted_ > Duration(0) ? std::min(1.0, seconds(lasted) / seconds(of.lasted_)) : 1;
}

// ---- ConnectionSearch ----------------------------------------------------------------------------

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
  judge(static_cast<double>(bytes - bytes_since_) / seconds(time), 2 * queues_ > looks_);
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
    return;  // what was measured before is what is had again
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
  not_full_ = full ? 0 : not_full_ + 1;
  not_full_goodput_ = full ? 0 : not_full_goodput_ + goodput;
  if (wanted_ == most_ || not_full_ < std::max(patience_, kFirstPatience)) return false;
  patience_ = std::min(2 * not_full_, kLongestPatience);
  return uncertain_ = true;
}

}  // namespace collab::tcp
