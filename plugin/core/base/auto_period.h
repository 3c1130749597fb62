// The period with COLLAB_SYNC_EVERY=auto or samples:N: its bounds, in steps, and how the latter is written.
//
// Threads: constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace collab {

// Before a round was measured, where neither `auto:N` nor a preset says another.
inline constexpr std::uint32_t kFirstAutoPeriod = 10;
inline constexpr std::uint32_t kMostAutoPeriod = 10'000;
inline constexpr std::string_view kPeriodOfSamples = "samples:";

}  // namespace collab
