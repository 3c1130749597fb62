#include "core/protocol/rate_meter.h"

#include <algorithm>
#include <cmath>

#include "core/wire/limits.h"

namespace collab::protocol {

void RateMeter::begin_round() {
  const double seen = sample();
  marks_.clear();
  if (seen > 0) estimate_ = seen > estimate_ ? seen : estimate_ + kFall * (seen - estimate_);
}

void RateMeter::add(TimePoint now, std::uint64_t bytes) {
  const std::uint64_t total = (marks_.empty() ? 0 : marks_.back().total) + bytes;
  if (!marks_.empty() && now - opened_ < kGrain) {
    marks_.back() = {now, total};
    return;
  }
  opened_ = now;
  marks_.push_back({now, total});
}

// What came at the first mark of a window was on its way before.
double RateMeter::sample() const {
  if (marks_.empty()) return 0;
  const Duration window = std::max(kLeastWindow, (marks_.back().at - marks_.front().at) / kWindowsPerRound);
  double best = 0;
  std::size_t first = 0;
  for (const Mark& mark : marks_) {
    if (mark.at - marks_.front().at < window) continue;
    while (mark.at - marks_[first + 1].at >= window) ++first;
    const auto bits = 8.0 * static_cast<double>(mark.total - marks_[first].total);
    best = std::max(best, 1e3 * bits / static_cast<double>((mark.at - marks_[first].at).count()));
  }
  return best;
}

std::uint32_t RateMeter::kbit_per_second() const {
  if (estimate_ <= 0) return 0;
  return static_cast<std::uint32_t>(std::clamp(std::round(estimate_), 1.0, static_cast<double>(wire::kMaxRateKbit)));
}

}  // namespace collab::protocol
