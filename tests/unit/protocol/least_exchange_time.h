// The time that an exchange cannot go below, whatever the shares are.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <span>

#include "core/protocol/allocation/water_filling.h"

namespace collab::protocol {

// Each line carries at least what it carries with the share that suits it best, none or all; all together carry every
// contribution but the owner's and every mean but the owner's, wherever that is.
inline double least_exchange_time(std::span<const Line> lines, double mean_ratio) {
  double contributors = 0;
  for (const Line& line : lines) contributors += line.contributes ? 1 : 0;
  const double means = (static_cast<double>(lines.size()) - 1) * mean_ratio;
  double longest = 0;
  double up = 0;
  double down = 0;
  for (const Line& line : lines) {
    const double own = line.contributes ? 1 : 0;
    longest = std::max({longest, std::min(own, means) / line.up, std::min(mean_ratio, contributors - own) / line.down});
    up += line.up;
    down += line.down;
  }
  const double crosses = contributors - 1 + means;
  return std::max({longest, crosses / up, crosses / down});
}

}  // namespace collab::protocol
