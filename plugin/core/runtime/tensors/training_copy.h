// A site's parameters as they were at a trigger, for a round that runs behind the training (COLLAB_OVERLAP).
//
// The node works on this copy as if the script stood still; the script trains on meanwhile. What the round makes of the
// copy is merged into the script's parameters at a step boundary (merge_copy()).
//
//   take, begin_round --> taken --displace: the commit of what was contributed--> moves
//                           |
//                           +---------before_write, ordinary writes: all else--> written, where displace adds to it
//
//   from each: took_anchor --> anchor; end_round, then merge_copy
//
// A round with a caller that waits for it (begin_round(false)) leaves the parameters themselves in the copy. Else the
// copy is what they are to be moved by: for trained elements (A - m) + factor * (m - s), where s is what the site
// contributed, m the mean of all contributions and A the new anchor. Over the contributors of a round, by weight, the
// terms m - s add up to zero, so nothing is lost or counted twice. Where payloads leave something out, they add up to
// that, and the residual keeps as much less (Residual::commit()). Buffers are never moved: they are the mean.
// Threads: the node's loop from begin_round() to end_round(), the session's caller otherwise.
// Ownership: borrows its values (the arena's); owns the original, which it keeps while both are needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "collab/session.h"
#include "core/runtime/tensors/parameter_change.h"

namespace collab {

class TrainingCopy final : public ParameterVector {
 public:
  TrainingCopy(std::span<float> values, const MergeSettings& settings) : values_(values), settings_(settings) {}

  // ---- the parameters at the trigger, and what becomes of them as if the script stood still
  [[nodiscard]] std::uint64_t size() const override { return values_.size(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override {
    return values_.subspan(offset, count);
  }
  Status read(std::uint64_t offset, std::span<float> out) override;
  Status write(std::uint64_t offset, std::span<const float> in) override;

  // ---- a round
  Status take(ParameterVector& parameters);
  void begin_round(bool merges);
  // The round's result is merged into parameters that have moved on.
  [[nodiscard]] bool merges() const { return merges_; }
  // Replaces the write of a new anchor if all of the copy was contributed. Once for each element.
  void displace(std::uint64_t offset, std::span<const float> anchor, std::span<const float> mean);
  // Called before a write to the copy, with its range. Not allowed once it moves: the taken parameters are gone then.
  void before_write(ElementRange range = kWholeVector);
  // The copy was unfit, and is the anchor from here on.
  void took_anchor() { holds_ = Holds::kAnchor; }
  // What the ranks of the site do with the copy from here on, and with which elements. `anchor`: the one in place.
  struct End {
    ParameterChange change = ParameterChange::kUnchanged;
    ElementRange range = kWholeVector;
  };
  [[nodiscard]] End end_round(std::span<const float> anchor);

  [[nodiscard]] std::span<const float> values() const { return values_; }
  [[nodiscard]] const MergeSettings& settings() const { return settings_; }

 private:
  // What the copy holds in the round that has begun.
  enum class Holds : std::uint8_t {
    kTaken,  // the parameters at the trigger
    kMoves,  // where it was displaced, by how much the parameters are to move; elsewhere the parameters at the trigger
    kWritten,  // what the parameters would be if the script had stood still
    kAnchor,   // the anchor, outright
  };
  [[nodiscard]] bool is_mixed() const { return settings_.merge.rule == MergeRule::kMix && displaced_.size() > 0; }
  [[nodiscard]] End moved_from(const std::vector<float>& original, std::span<const float> anchor);
  [[nodiscard]] std::uint64_t trained() const { return std::min<std::uint64_t>(settings_.trained, values_.size()); }

  std::span<float> values_;
  MergeSettings settings_;
  std::vector<float> original_;  // as taken, if it has been written to since; else empty
  ElementRange displaced_{};
  ElementRange written_{};
  bool merges_ = false;
  Holds holds_ = Holds::kTaken;
};

}  // namespace collab
