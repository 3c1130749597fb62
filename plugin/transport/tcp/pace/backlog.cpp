#include "transport/tcp/pace/backlog.h"

#include <algorithm>
#include <utility>

namespace collab::tcp {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(500);        // the shortest gap between two exchanges
constexpr Duration kLongestTick = std::chrono::milliseconds(250);  // longer gaps do not count: the ticker stood still

}  // namespace

void Backlog::note(TimePoint now, bool waiting) {
  const TimePoint before = std::exchange(noted_, now);
  if (!waiting) return;
  if (before != TimePoint()) lasted_ += std::min(now - before, kLongestTick);
  seen_ = now;
}

bool Backlog::over(TimePoint now) const { return lasted_ > Duration(0) && now - seen_ > kPause; }

double Backlog::take_share(const Backlog& of) {
  const Duration lasted = std::exchange(lasted_, Duration(0));
  return of.lasted_ > Duration(0) ? std::min(1.0, seconds_of(lasted) / seconds_of(of.lasted_)) : 1;
}

}  // namespace collab::tcp
