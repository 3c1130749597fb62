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
  float clip = 0;                           // upper bound on the applied mean delta's norm; 0: none
  std::uint64_t period = kReferencePeriod;  // inner steps from one round to the next
};

// The learning rate for nesterov with momentum 0.9, by the number of contributors and the inner steps between rounds.
// arXiv:2503.09799 found 0.4, 0.6, 0.6, 0.8 best for 1, 2, 4, 8 replicas and 30 steps, and more for longer periods.
// Between those numbers the rate is linear in log2(sites); above 8 it is that of 8. Each doubling of the period above
// 30 adds 0.05. It is at most 1, has two decimals, and has the same bits on every machine.
[[nodiscard]] float auto_outer_lr(std::size_t contributors, std::uint64_t period);
// The configuration for this many contributors: sets the learning rate, and replaces `rda` by `average` if there is
// only one.
[[nodiscard]] OuterConfig for_contributors(const OuterConfig& config, std::size_t contributors);

// The sum of the squares: binary64, in a fixed order.
[[nodiscard]] double square_of(std::span<const float> vector);
// The Euclidean norm, the root of square_of().
[[nodiscard]] double norm_of(std::span<const float> vector);
// The factor that clips a mean of this norm; 1: the norm is within `clip`.
[[nodiscard]] float clip_factor(float clip, double norm);
void multiply(std::span<float> vector, float factor);

// The factor by which `rda` multiplies a tensor's mean delta. It is 1 for equal deltas, and the root of the number of
// contributors for orthogonal deltas of one length. It is never larger: where deltas cancel out, the rest of the mean
// is rounding, and what earlier payloads left out.
[[nodiscard]] float radial_factor(double mean_of_norms, double norm_of_mean, std::size_t contributors);

[[nodiscard]] bool has_outer_state(OuterId id);

// On entry `mean_then_anchor` holds the mean delta g; on return it holds the new anchor.
// average:  anchor' = anchor - lr * g          (lr 1: local SGD's average of the sites' models)
// nesterov: m = momentum * m + g;  anchor' = anchor - lr * (g + momentum * m)   (DiLoCo, arXiv:2311.08105, with
//           PyTorch SGD(nesterov=True)'s form). `outer` is m; empty for the others.
// rda:      as average, of a mean that was multiplied by its tensors' factors (RadialNorms; arXiv:2604.21428).
void outer_step(const OuterConfig& config, std::span<const float> anchor, std::span<float> mean_then_anchor,
                std::span<float> outer);

}  // namespace collab
