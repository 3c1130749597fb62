#include "core/runtime/tensors/training_copy.h"

#include <algorithm>
#include <utility>

#include "core/base/float_environment.h"

namespace collab {

namespace {

// Both, and what lies between them.
ElementRange all_between(ElementRange a, ElementRange b) {
  if (a.size() == 0 || b.size() == 0) return a.size() == 0 ? b : a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

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
  displaced_ = written_ = {};
}

void TrainingCopy::before_write(ElementRange range) {
  written_ = all_between(written_, common(range, {0, values_.size()}));
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
  const bool absolute = !only_displaced();
  mixed_ = settings_.merge.rule == MergeRule::kMix;
  changed_ = true;
  if (displaced_.size() == 0) displaced_.begin = offset;
  displaced_.end = offset + anchor.size();
  for (std::size_t i = 0; i < moved; ++i) {
    const float by = (anchor[i] - mean[i]) + factor * (mean[i] - here[i]);
    here[i] = mixed_ ? anchor[i] : absolute ? here[i] + by : by;
  }
  std::ranges::copy(anchor.subspan(moved), here.subspan(moved).begin());
}

TrainingCopy::End TrainingCopy::end_round(std::span<const float> anchor) {
  const bool only_displaced = this->only_displaced();
  const std::vector<float> original = std::exchange(original_, {});
  if (took_anchor_) return {ParameterChange::kTakeCopy};
  if (!changed_) return {ParameterChange::kUnchanged};
  if (!merges_) return {ParameterChange::kTakeCopy};
  const bool all = displaced_ == ElementRange{0, values_.size()};
  if (mixed_ && (only_displaced || all)) return {ParameterChange::kMixed, displaced_};
  if (only_displaced) return {ParameterChange::kMoved, displaced_};
  const ElementRange changed = all_between(written_, displaced_);
  const FloatEnvironment ieee;
  const auto kept = mixed_ ? static_cast<float>(settings_.merge.factor) : 0.0F;
  for (std::size_t i = 0; i < trained(); ++i) {
    values_[i] -= original[i];
    // A fragment is mixed, and the rest moves whole: of the fragment what was trained meanwhile stays.
    if (mixed_ && displaced_.begin <= i && i < displaced_.end) values_[i] *= 1.0F - kept;
  }
  const auto [begin, end] = common(changed, {trained(), values_.size()});
  std::ranges::copy(anchor.subspan(begin, end - begin), values_.subspan(begin).begin());
  return {ParameterChange::kMoved, changed};
}

}  // namespace collab
