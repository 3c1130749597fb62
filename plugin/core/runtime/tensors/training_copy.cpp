#include "core/runtime/tensors/training_copy.h"

#include <algorithm>
#include <utility>

#include "collab/status.h"
#include "core/base/float_environment.h"

namespace collab {

namespace {

// The smallest range that covers both.
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
  holds_ = Holds::kTaken;
  original_ = {};
  displaced_ = written_ = {};
}

void TrainingCopy::before_write(ElementRange range) {
  written_ = all_between(written_, common(range, {0, values_.size()}));
  if (holds_ == Holds::kAnchor) return;
  COLLAB_CHECK(holds_ != Holds::kMoves, "a copy was written to after a commit had displaced it");
  if (merges_ && original_.empty()) original_.assign(values_.begin(), values_.end());
  holds_ = Holds::kWritten;
}

void TrainingCopy::displace(std::uint64_t offset, std::span<const float> anchor, std::span<const float> mean) {
  const FloatEnvironment ieee;
  const std::uint64_t end = std::min<std::uint64_t>(trained(), offset + anchor.size());
  const std::size_t moved = end > offset ? end - offset : 0;
  const std::span<float> here = values_.subspan(offset, anchor.size());
  const auto factor = static_cast<float>(settings_.merge.factor);
  // If the copy was written to in this round, it ends with the new values, not with how far they moved.
  if (holds_ == Holds::kTaken) holds_ = Holds::kMoves;
  const bool absolute = holds_ != Holds::kMoves;
  const bool mixed = settings_.merge.rule == MergeRule::kMix;
  if (displaced_.size() == 0) displaced_.begin = offset;
  displaced_.end = offset + anchor.size();
  for (std::size_t i = 0; i < moved; ++i) {
    const float by = (anchor[i] - mean[i]) + factor * (mean[i] - here[i]);
    here[i] = mixed ? anchor[i] : absolute ? here[i] + by : by;
  }
  std::ranges::copy(anchor.subspan(moved), here.subspan(moved).begin());
}

TrainingCopy::End TrainingCopy::end_round(std::span<const float> anchor) {
  const std::vector<float> original = std::exchange(original_, {});
  const bool all = displaced_ == ElementRange{0, values_.size()};
  switch (holds_) {
    case Holds::kTaken: return {ParameterChange::kUnchanged};
    case Holds::kAnchor: return {ParameterChange::kTakeCopy};
    case Holds::kMoves: return {is_mixed() ? ParameterChange::kMixed : ParameterChange::kMoved, displaced_};
    case Holds::kWritten:
      if (!merges_) return {ParameterChange::kTakeCopy};
      if (is_mixed() && all) return {ParameterChange::kMixed, displaced_};
      return moved_from(original, anchor);
  }
  return {ParameterChange::kUnchanged};
}

// The result minus the values as taken: how far the parameters are to move.
TrainingCopy::End TrainingCopy::moved_from(const std::vector<float>& original, std::span<const float> anchor) {
  const ElementRange changed = all_between(written_, displaced_);
  const FloatEnvironment ieee;
  const bool mixed = is_mixed();
  const auto kept = mixed ? static_cast<float>(settings_.merge.factor) : 0.0F;
  for (std::size_t i = 0; i < trained(); ++i) {
    values_[i] -= original[i];
    // The fragment is mixed: what was trained in it meanwhile stays. The rest moves whole.
    if (mixed && displaced_.begin <= i && i < displaced_.end) values_[i] *= 1.0F - kept;
  }
  const auto [begin, end] = common(changed, {trained(), values_.size()});
  std::ranges::copy(anchor.subspan(begin, end - begin), values_.subspan(begin).begin());
  return {ParameterChange::kMoved, changed};
}

}  // namespace collab
