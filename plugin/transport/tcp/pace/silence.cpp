#include "transport/tcp/pace/silence.h"

#include <algorithm>
#include <utility>

#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

constexpr Duration kShortestSilence = std::chrono::milliseconds(100);

}  // namespace

bool Silence::observe(TimePoint now, std::uint64_t delivered, bool in_flight, Duration round_trip) {
  if (std::exchange(delivered_, delivered) != delivered) {
    heard_ = now;
    flowing_ = true;
  }
  flowing_ = flowing_ && in_flight;
  if (off(Mechanism::kSilence)) return false;
  return flowing_ && now - heard_ > std::max(kShortestSilence, round_trip + round_trip / 8);
}

}  // namespace collab::tcp
