// The highest term that is believed at a given time.
//
// Each election uses one term, so an honest swarm never comes near the limit. If a site claims a higher term and is
// believed, all others follow it. But every claimed term is below the limit a moment later, everywhere. So no claim
// keeps a site out for long, and none uses up the terms.
//
// Pure. Threads: plain values.
#pragma once

#include <algorithm>
#include <chrono>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/wire/limits.h"

namespace collab::protocol {

struct TermLimit {
  // The time of day when the machine's monotonic clock was 0. kNoLimit: any term that a message can carry.
  static constexpr Duration kNoLimit = Duration::max();
  Duration since_1970 = kNoLimit;

  [[nodiscard]] TermId at(TimePoint now) const {
    constexpr std::uint64_t kTermsInASecond = 4096;
    constexpr std::uint64_t kWhateverTheClockShows = std::uint64_t{1} << 32;  // honest swarms have fewer elections
    if (since_1970 == kNoLimit) return TermId{wire::kMaxTerm};
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(since_1970 + now.time_since_epoch());
    const auto passed = static_cast<std::uint64_t>(std::max<std::int64_t>(since.count(), 0));
    return TermId{std::clamp(passed * kTermsInASecond / 1000, kWhateverTheClockShows, wire::kMaxTerm)};
  }
};

// The limit on a machine whose clocks show these two times.
[[nodiscard]] inline TermLimit term_limit(std::chrono::nanoseconds since_1970, TimePoint now) {
  return {std::chrono::duration_cast<Duration>(since_1970) - now.time_since_epoch()};
}

}  // namespace collab::protocol
