// The period with COLLAB_SYNC_EVERY=auto or samples:N: its bounds, in steps, and the prefix of the latter.
//
// Threads: constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace collab {

// The period before a round was measured, unless `auto:N` or a preset sets another.
inline constexpr std::uint32_t kFirstAutoPeriod = 10;
inline constexpr std::uint32_t kMostAutoPeriod = 10'000;
inline constexpr std::string_view kPeriodOfSamples = "samples:";

}  // namespace collab
