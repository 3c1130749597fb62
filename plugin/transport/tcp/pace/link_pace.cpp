#include "transport/tcp/pace/link_pace.h"

#include <algorithm>
#include <utility>

#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

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
constexpr double kTelling = 1.5;      // measured seconds of an exchange: shorter ones tell of their climb only
constexpr double kLeastShare = 0.25;  // one slow link does not stop the others

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

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
  if (now - drained_ > kDrainEvery && !off(Mechanism::kDrain)) {  // the shortest way stays known
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

}  // namespace collab::tcp
