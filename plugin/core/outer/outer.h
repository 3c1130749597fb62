// Outer optimizers: how the agreed mean delta moves the anchor.
//
// Elementwise, in place, the same bits on every CPU. Threads: pure functions.
#pragma once

#include <span>

#include "collab/types.h"

namespace collab {

struct OuterConfig {
  OuterId id = OuterId::kAverage;
  float lr = 1.0F;
  float momentum = 0.9F;
};

[[nodiscard]] bool has_outer_state(OuterId id);

// On entry `mean_then_anchor` holds the mean delta g, on return the new anchor.
// average:  anchor' = anchor - lr * g          (lr 1: local SGD's average of the sites' models)
// nesterov: m = momentum * m + g;  anchor' = anchor - lr * (g + momentum * m)   (DiLoCo, arXiv:2311.08105, with
//           PyTorch SGD(nesterov=True)'s form). `outer` is m; empty for average.
void outer_step(const OuterConfig& config, std::span<const float> anchor, std::span<float> mean_then_anchor,
                std::span<float> outer);

}  // namespace collab
