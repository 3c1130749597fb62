#include "core/runtime/tensors/training_copy.h"

#include <algorithm>
#include <utility>

#include "core/base/float_environment.h"

namespace collab {

Status TrainingCopy::read(std::uint64_t offset, std::span<float> out) {
  std::ranges::copy(values_.subspan(offset, out.size()), out.begin());
  return {};
}

Status TrainingCopy::write(std::uint64_t offset, std::span<const float> in) {
  std::ranges::copy(in, values_.subspan(offset, in.size()).begin());
  return {};
}

Status TrainingCopy::take(ParameterVector& parameters) { return parameters.read(0, values_); }

void TrainingCopy::begin_round(bool merges) {
  merges_ = merges;
  changed_ = mixed_ = took_anchor_ = false;
  original_ = {};
}

void TrainingCopy::before_write() {
  if (merges_ && original_.empty()) original_.assign(values_.begin(), values_.end());
  changed_ = true;
}

void TrainingCopy::displace(std::uint64_t offset, std::span<const float> anchor, std::span<const float> mean) {
  const FloatEnvironment ieee;
  const std::uint64_t end = std::min<std::uint64_t>(trained(), offset + anchor.size());
  const std::size_t moved = end > offset ? end - offset : 0;
  const std::span<float> here = values_.subspan(offset, anchor.size());
  const auto factor = static_cast<float>(settings_.merge.factor);
  // Whose copy was moved within this round ends with where that led to, not with by how much.
  const bool absolute = !original_.empty() || took_anchor_;
  mixed_ = settings_.merge.rule == MergeRule::kMix;
  changed_ = true;
  for (std::size_t i = 0; i < moved; ++i) {
    const float by = (anchor[i] - mean[i]) + factor * (mean[i] - here[i]);
    here[i] = mixed_ ? anchor[i] : absolute ? here[i] + by : by;
  }
  std::ranges::copy(anchor.subspan(moved), here.subspan(moved).begin());
}

ParameterChange TrainingCopy::end_round(std::span<const float> anchor) {
  const std::vector<float> original = std::exchange(original_, {});
  if (took_anchor_) return ParameterChange::kTakeCopy;
  if (!changed_) return ParameterChange::kUnchanged;
  if (!merges_) return ParameterChange::kTakeCopy;
  if (mixed_) return ParameterChange::kMixed;
  if (!original.empty()) {
    const FloatEnvironment ieee;
    for (std::size_t i = 0; i < trained(); ++i) values_[i] -= original[i];
  }
  std::ranges::copy(anchor.subspan(trained()), values_.subspan(trained()).begin());
  return ParameterChange::kMoved;
}

}  // namespace collab
