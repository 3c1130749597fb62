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
  // For the elements of `range`; `shares`: the parts of the mean of the participants that contribute, in site order.
  RoundStep(const DataSettings& settings, ElementRange range, std::size_t participants, std::vector<float> shares);

  // The average of one model is that model, bit for bit; a - (a - x) is not always x.
  [[nodiscard]] bool averages_itself() const;
  // It is taken chunk by chunk, before the commit.
  [[nodiscard]] bool is_taken_at_once() const;
  [[nodiscard]] float lr() const { return outer_.lr; }

  // With `rda`, where there is more than one contributor; else none.
  [[nodiscard]] RadialNorms* norms() { return norms_ ? &*norms_ : nullptr; }
  [[nodiscard]] const RadialNorms* norms() const { return norms_ ? &*norms_ : nullptr; }
  // All norms are known.
  void close();
  // The whole mean's norm if it is too long; it is then to be shrunk. Else 0.
  double clip(std::span<const float> mean);
  // The new anchor in place of the mean of the elements from `begin` on; `state` is empty or as long.
  void take(std::uint64_t begin, std::span<const float> anchor, std::span<float> mean, std::span<float> state) const;

 private:
  const DataSettings& settings_;
  ElementRange range_;  // the fragment that is averaged
  bool sole_;           // one participant
  OuterConfig outer_;   // the step, as it is for those who contribute
  std::optional<RadialNorms> norms_;
  std::vector<RadialNorms::Factor> factors_;  // by what their tensors' means are multiplied
  float shrink_ = 1.0F;                       // of the mean, which is too long
};

}  // namespace collab
