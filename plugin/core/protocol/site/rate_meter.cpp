#include "core/protocol/site/rate_meter.h"

#include <algorithm>
#include <cmath>

#include "core/wire/limits.h"

namespace collab::protocol {

void RateMeter::begin_round() {
  const double seen = sample();
  marks_.clear();
  idle_ = {};
  idle_since_ = kNever;
  if (seen > 0) estimate_ = seen > estimate_ ? seen : estimate_ + kFall * (seen - estimate_);
}

void RateMeter::add(TimePoint now, std::uint64_t bytes) {
  const std::uint64_t total = (marks_.empty() ? 0 : marks_.back().total) + bytes;
  const Mark mark{now, total, idle_ + (now > idle_since_ ? now - idle_since_ : Duration{})};
  if (!marks_.empty() && now - opened_ < kGrain) {
    marks_.back() = mark;
    return;
  }
  opened_ = now;
  marks_.push_back(mark);
}

void RateMeter::set_busy(TimePoint now, bool busy) {
  if (busy && now > idle_since_) idle_ += now - idle_since_;
  if (busy || idle_since_ == kNever) idle_since_ = busy ? kNever : now;
}

// Bytes at the first mark of a window do not count: they were on their way before.
double RateMeter::sample() const {
  if (marks_.empty()) return 0;
  const Duration window = std::max(kLeastWindow, (marks_.back().at - marks_.front().at) / kWindowsPerRound);
  double best = 0;
  std::size_t first = 0;
  for (const Mark& mark : marks_) {
    if (mark.at - marks_.front().at < window) continue;
    while (mark.at - marks_[first + 1].at >= window) ++first;
    const auto bits = 8.0 * static_cast<double>(mark.total - marks_[first].total);
    const Duration length = mark.at - marks_[first].at;
    const Duration counts = std::max(length - (mark.idle - marks_[first].idle), length / kMostIdle);
    best = std::max(best, 1e3 * bits / static_cast<double>(counts.count()));
  }
  return best;
}

std::uint32_t RateMeter::kbit_per_second() const {
  if (estimate_ <= 0) return 0;
  return static_cast<std::uint32_t>(std::clamp(std::round(estimate_), 1.0, static_cast<double>(wire::kMaxRateKbit)));
}

}  // namespace collab::protocol
