#include "transport/tcp/pace/link_pace.h"

#include <algorithm>

#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

// ---- time
constexpr Duration kShortestEpoch = std::chrono::milliseconds(50);
constexpr double kLeastEpochBytes = 16e3;  // so that an epoch has enough packets to count
constexpr Duration kDrainEvery = std::chrono::seconds(5);
constexpr double kLeastMeasuredSeconds = 1.5;  // of an exchange: shorter ones only show the ramp-up
// ---- the queue
constexpr double kTargetSeconds = 0.015;
constexpr double kTargetOfRoundTrip = 0.1;  // or this, if it is more
constexpr double kNoQueueBelow = 0.25;      // of the target
constexpr double kLongQueueFrom = 3;        // targets
constexpr double kPatienceLost = 15;        // targets lost per unit of PathSample::behind
constexpr double kLeastPatience = 0.25;
constexpr double kHorizonEpochs = 4;  // epochs in which to correct a deviation from the target
// ---- the rate
constexpr double kLeastOfLine = 0.75, kMostOfLine = 1.1;  // limits of the rate, relative to the line's
constexpr double kLeastBytesPerSecond = 32.0 * 1024;
constexpr double kWeightOfEpoch = 1.0 / 8;
constexpr double kFirstStep = 0.02, kStepGrowth = 1.6, kLongestStep = 0.25;
constexpr double kLeastShare = 0.25;  // of an exchange: keeps one slow link from stopping the others
// ---- arrivals, relative to what was sent
constexpr double kKeepsUp = 0.9;
constexpr double kCarriesAll = 0.95;
constexpr double kFarLess = 0.75;
// ---- before there is a rate
constexpr double kStillClimbs = 1.2;  // arrivals, relative to the previous epoch
constexpr int kEpochsWithQueue = 2;   // in a row, after which the line counts as full

}  // namespace

Duration LinkPace::epoch() const {
  const Duration packets =
      rate_ > 0 ? Duration(static_cast<Duration::rep>(1e6 * kLeastEpochBytes / rate_)) : Duration(0);
  return std::max({kShortestEpoch, queue_.round_trip(), packets});
}

double LinkPace::target() const {
  return patience_ * std::max(kTargetSeconds, kTargetOfRoundTrip * seconds_of(queue_.shortest_round_trip()));
}

bool LinkPace::sees_queue() const { return !queue_.known() || queue_.seconds() >= kNoQueueBelow * target(); }

void LinkPace::begin_epoch(TimePoint now, const PathSample& path_sample) {
  since_ = now;
  delivered_since_ = path_sample.delivered;
  resent_since_ = path_sample.resent;
}

double LinkPace::observe(TimePoint now, const PathSample& path_sample) {
  queue_.note(now, path_sample.round_trip, path_sample.one_way_delay);
  if (!path_sample.backlogged || path_sample.round_trip == Duration(0)) {
    measuring_ = false;
    return rate_;
  }
  if (!measuring_) {
    // After a pause, the known round trips are old, and nothing has arrived yet.
    measuring_ = true;
    settled_ = now + 2 * path_sample.round_trip;
    rate_ = before_ = line_;
    drained_ = now;
    if (line_ > 0) last_delivered_ = 0;  // otherwise the line's rate is not known yet
    step_ = kFirstStep;
    queue_.begin_anew();
  }
  if (now < settled_) {
    begin_epoch(now, path_sample);
    return rate_;
  }
  if (now - since_ < epoch()) return rate_;
  const double time = seconds_of(now - since_);
  const auto delivered = static_cast<double>(path_sample.delivered - delivered_since_);
  const auto resent = static_cast<double>(path_sample.resent - resent_since_);
  const double sent = rate_;
  begin_epoch(now, path_sample);
  patience_ = std::clamp(1 + kPatienceLost * path_sample.behind, kLeastPatience, 1.0);
  end_epoch(now, time, delivered / time, (delivered + resent) / time);
  before_ = sent;
  last_delivered_ = delivered / time;
  queue_.end_epoch();
  return rate_;
}

void LinkPace::end_epoch(TimePoint now, double took, double delivered, double carried) {
  if (rate_ == 0) {
    find(delivered);
    return;
  }
  follow(delivered, carried);
  if (line_ < kLeastBytesPerSecond) {
    line_ = rate_ = 0;
    lines_.forget();
    full_ = 0;
    return;
  }
  lines_.note(line_, took);
  const double time = seconds_of(epoch());
  double lean = (target() - queue_.seconds()) / (kHorizonEpochs * time);
  if (now - drained_ > kDrainEvery && !off(Mechanism::kDrain)) {  // keeps measuring the shortest delay
    drained_ = now;
    lean = -queue_.seconds() / time;
  }
  rate_ = line_ * std::clamp(1 + lean, kLeastOfLine, kMostOfLine);
}

void LinkPace::exchange_ended(double share) {
  if (lines_.seconds() > kLeastMeasuredSeconds)
    line_ = std::max(kLeastBytesPerSecond, lines_.value() * std::max(kLeastShare, share));
  lines_.forget();
}

void LinkPace::find(double delivered) {
  const bool full = queue_.seconds() > target() && delivered < kStillClimbs * last_delivered_;
  full_ = full ? full_ + 1 : 0;
  if (full_ < kEpochsWithQueue) return;
  full_ = 0;
  const double most = std::max(delivered, last_delivered_);
  if (most >= kLeastBytesPerSecond) line_ = rate_ = most;
}

// Arrivals show the line's rate only if there is a queue, or if less arrives than was sent.
void LinkPace::follow(double delivered, double carried) {
  if (queue_.seconds() < kNoQueueBelow * target()) {
    if (delivered < kKeepsUp * before_) {
      step_ = kFirstStep;
    } else {
      line_ *= 1 + step_;
      step_ = std::min(step_ * kStepGrowth, kLongestStep);
    }
    return;
  }
  step_ = kFirstStep;
  const double most = std::max(delivered, last_delivered_);
  if (queue_.seconds() > kLongQueueFrom * target() && most < kFarLess * before_) {
    line_ = most;
  } else if (carried > line_ || delivered < kCarriesAll * before_) {
    line_ += kWeightOfEpoch * (carried - line_);
  }
}

}  // namespace collab::tcp
