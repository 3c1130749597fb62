// The weighted mean of a chunk, summed in site order.
//
// mean = (...((s0*d0) + s1*d1) + ...) with s_i = float(w_i / sum of w, computed in double in site order), each
// product and sum rounded to float32: the same bits whatever the CPU and the chunk's owner.
// Threads: pure functions.
#pragma once

#include <span>
#include <vector>

namespace collab {

// s_i for the weights in site order; weights of 0 give 0. The sum must be positive.
[[nodiscard]] std::vector<float> mean_scales(std::span<const double> weights);

// Adds scale * (a[i] - b[i]) to acc[i], or stores it there if `first`. Returns false on NaN or Inf.
[[nodiscard]] bool accumulate_difference(std::span<const float> a, std::span<const float> b, float scale, bool first,
                                         std::span<float> acc);

}  // namespace collab
