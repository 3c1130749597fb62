// How long a site waits between two dials to the same address: twice as long each time, within these limits.
//
// Threads and ownership: constants.
#pragma once

#include <chrono>

#include "collab/clock.h"

namespace collab::protocol {

inline constexpr Duration kFirstBackoff = std::chrono::milliseconds(200);
inline constexpr Duration kLastBackoff = std::chrono::seconds(5);

}  // namespace collab::protocol
