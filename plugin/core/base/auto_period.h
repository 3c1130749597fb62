// Bounds of the period, in steps, with COLLAB_SYNC_EVERY=auto.
//
// Threads: constants.
#pragma once

#include <cstdint>

namespace collab {

// Before a round was measured, where neither `auto:N` nor a preset says another.
inline constexpr std::uint32_t kFirstAutoPeriod = 10;
inline constexpr std::uint32_t kMostAutoPeriod = 10'000;

}  // namespace collab
