// Outer optimizers: how the agreed mean delta moves the anchor.
//
// Elementwise, in place, the same bits on every CPU. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collab/config.h"
#include "collab/types.h"

namespace collab {

inline constexpr std::uint64_t kReferencePeriod = 30;

struct OuterConfig {
  OuterId id = OuterId::kAverage;
  float lr = 1.0F;  // 0: auto_outer_lr()
  float momentum = static_cast<float>(default_config().outer_momentum);
  float clip = 0;                           // the mean delta's norm is at most this when it is applied; 0: any
  std::uint64_t period = kReferencePeriod;  // inner steps from one round to the next
};

// The learning rate that goes with nesterov of momentum 0.9, by how many sites contribute and how many inner steps
// are between rounds. After arXiv:2503.09799, which found 0.4, 0.6, 0.6, 0.8 best for 1, 2, 4, 8 replicas and 30
// steps, and more for longer periods: between those numbers straight lines over log2(sites), above 8 as for 8; 0.05
// more for each doubling of the period above 30; at most 1. To two decimals, and the same bits on every machine.
[[nodiscard]] float auto_outer_lr(std::size_t contributors, std::uint64_t period);
// As it is in force for so many: its learning rate, and `average` in place of `rda` where one is the mean.
[[nodiscard]] OuterConfig for_contributors(const OuterConfig& config, std::size_t contributors);

// The sum of the squares: binary64, in a fixed order.
[[nodiscard]] double square_of(std::span<const float> vector);
// The Euclidean norm, its root.
[[nodiscard]] double norm_of(std::span<const float> vector);
// By what a mean of this norm is multiplied; 1: the norm is within `clip`.
[[nodiscard]] float clip_factor(float clip, double norm);
void multiply(std::span<float> vector, float factor);

// By what `rda` multiplies a tensor's mean delta: from 1, which all deltas alike give, to the root of the number of
// contributors, which equal ones at right angles give. What points against each other is no reason to go further: where
// little is left of a mean, that is rounding, and what earlier payloads left out.
[[nodiscard]] float radial_factor(double mean_of_norms, double norm_of_mean, std::size_t contributors);

[[nodiscard]] bool has_outer_state(OuterId id);

// On entry `mean_then_anchor` holds the mean delta g, on return the new anchor.
// average:  anchor' = anchor - lr * g          (lr 1: local SGD's average of the sites' models)
// nesterov: m = momentum * m + g;  anchor' = anchor - lr * (g + momentum * m)   (DiLoCo, arXiv:2311.08105, with
//           PyTorch SGD(nesterov=True)'s form). `outer` is m; empty for the others.
// rda:      as average, of a mean that was multiplied by its tensors' factors (RadialNorms; arXiv:2604.21428).
void outer_step(const OuterConfig& config, std::span<const float> anchor, std::span<float> mean_then_anchor,
                std::span<float> outer);

}  // namespace collab
