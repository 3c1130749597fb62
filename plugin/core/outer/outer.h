// Outer optimizers: how the agreed mean delta moves the anchor.
//
// Elementwise, in place, the same bits on every CPU. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collab/types.h"

namespace collab {

inline constexpr std::uint64_t kReferencePeriod = 30;

struct OuterConfig {
  OuterId id = OuterId::kAverage;
  float lr = 1.0F;  // 0: auto_outer_lr()
  float momentum = 0.9F;
  float clip = 0;                           // the mean delta's norm is at most this when it is applied; 0: any
  std::uint64_t period = kReferencePeriod;  // inner steps from one round to the next
};

// The learning rate that goes with nesterov of momentum 0.9, by how many sites contribute and how many inner steps
// are between rounds. After arXiv:2503.09799, which found 0.4, 0.6, 0.6, 0.8 best for 1, 2, 4, 8 replicas and 30
// steps, and more for longer periods: between those numbers straight lines over log2(sites), above 8 as for 8; 0.05
// more for each doubling of the period above 30; at most 1. To two decimals, and the same bits on every machine.
[[nodiscard]] float auto_outer_lr(std::size_t contributors, std::uint64_t period);
// With the learning rate in force for so many.
[[nodiscard]] OuterConfig for_contributors(const OuterConfig& config, std::size_t contributors);

// The Euclidean norm, from binary64 sums in a fixed order.
[[nodiscard]] double norm_of(std::span<const float> vector);
// By what a mean of this norm is multiplied; 1: it is as short as `clip` asks.
[[nodiscard]] float clip_factor(float clip, double norm);
void multiply(std::span<float> vector, float factor);

[[nodiscard]] bool has_outer_state(OuterId id);

// On entry `mean_then_anchor` holds the mean delta g, on return the new anchor.
// average:  anchor' = anchor - lr * g          (lr 1: local SGD's average of the sites' models)
// nesterov: m = momentum * m + g;  anchor' = anchor - lr * (g + momentum * m)   (DiLoCo, arXiv:2311.08105, with
//           PyTorch SGD(nesterov=True)'s form). `outer` is m; empty for average.
void outer_step(const OuterConfig& config, std::span<const float> anchor, std::span<float> mean_then_anchor,
                std::span<float> outer);

}  // namespace collab
