// The outer step of one round: what becomes of the mean of its contributors' deltas, and when.
//
// Threads: one caller. Ownership: with `rda`, the norms of the mean's tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/outer/outer.h"
#include "core/outer/radial_norms.h"
#include "core/runtime/data/data_settings.h"

namespace collab {

class RoundStep {
 public:
  // For the elements of `range`; `shares`: each contributor's part of the mean, in site order.
  RoundStep(const DataSettings& settings, ElementRange range, std::size_t participants, std::vector<float> shares);

  // The average of one model is that model, bit for bit; a - (a - x) is not always x.
  [[nodiscard]] bool averages_itself() const;
  // The step is taken chunk by chunk, before the commit.
  [[nodiscard]] bool is_taken_at_once() const;
  [[nodiscard]] float lr() const { return outer_.lr; }

  // With `rda` and more than one contributor; else null.
  [[nodiscard]] RadialNorms* norms() { return norms_ ? &*norms_ : nullptr; }
  [[nodiscard]] const RadialNorms* norms() const { return norms_ ? &*norms_ : nullptr; }
  // Called when all norms are known.
  void close();
  // The whole mean's norm if it is too long; take() then shrinks the mean. Else 0.
  double clip(std::span<const float> mean);
  // Replaces the mean of the elements from `begin` on with the new anchor; `state` is empty or as long.
  void take(std::uint64_t begin, std::span<const float> anchor, std::span<float> mean, std::span<float> state) const;

 private:
  const DataSettings& settings_;
  ElementRange range_;  // the fragment that is averaged
  bool sole_;           // one participant
  OuterConfig outer_;   // the step for these contributors
  std::optional<RadialNorms> norms_;
  std::vector<RadialNorms::Factor> factors_;  // factors for the means of their tensors
  float shrink_ = 1.0F;                       // factor for a mean that is too long
};

}  // namespace collab
