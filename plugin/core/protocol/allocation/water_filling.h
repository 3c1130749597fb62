// How much of the vector each site should reduce, so that the slowest line of all is done soonest.
//
// Site i owns the share f_i of a delta of S encoded bytes; a mean takes c times as many. If m sites contribute and n
// take the mean, site i sends S * (a_i * (1 - f_i) + (n - 1) * c * f_i) and receives S * (c * (1 - f_i) + (m - a_i) *
// f_i), where a_i is 1 if it contributes, else 0. We look for the f_i, with sum 1, that minimise the time of the
// slowest line. (DeDLOC, arXiv:2106.10207, solves this problem as a linear program.) The share that a site can own in a
// time T is piecewise linear in T, with few bends. So all lines are filled to one level: O(n log n), exact up to
// rounding.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <vector>

#include "core/protocol/exchange/slice_table.h"

namespace collab::protocol {

struct Line {
  SiteId site;
  double up = 0;  // rates in one unit, both above 0
  double down = 0;
  bool contributes = true;
  bool may_own = true;
};

// The shares in the order of `lines`, with sum 1; empty if no site may own. If a line is slow even when it owns
// nothing, the others are still filled to the lowest level that holds the rest.
[[nodiscard]] std::vector<Share> fill_lines(std::span<const Line> lines, double mean_ratio);

// What a site sends and receives with a share, in units of a whole encoded delta.
struct Volume {
  double up = 0;
  double down = 0;
};
[[nodiscard]] std::vector<Volume> volumes(std::span<const Line> lines, std::span<const Share> shares,
                                          double mean_ratio);

// How long one encoded delta's exchange takes with these shares.
[[nodiscard]] double exchange_time(std::span<const Line> lines, std::span<const Share> shares, double mean_ratio);

}  // namespace collab::protocol
