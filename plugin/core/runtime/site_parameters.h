// A site's parameters at its node, and the anchor they are trained from: what becomes of them at a join and at the end
// of a round, beyond what the data plane does. With a copy, rounds may run behind the training. Then the parameters
// here are the copy, and its result is merged into the script's.
//
// Threads: the node's loop, while the caller stands still, or has handed over the copy. Ownership: borrows all three.
#pragma once

#include <cstdint>
#include <optional>

#include "collab/status.h"
#include "core/arena/arena.h"
#include "core/protocol/actions.h"
#include "core/protocol/fragments.h"
#include "core/runtime/tensors/parameter_change.h"
#include "core/runtime/tensors/training_copy.h"

namespace collab {

class SiteParameters {
 public:
  // `copy`: the same object as `parameters`, or null.
  SiteParameters(ArenaWriter& arena, ParameterVector& parameters, TrainingCopy* copy, std::uint32_t fragments)
      : arena_(arena),
        parameters_(parameters),
        copy_(copy),
        fragments_(protocol::fragments_for(fragments, parameters.size())) {}

  [[nodiscard]] ArenaWriter& arena() const { return arena_; }
  [[nodiscard]] ParameterVector& vector() const { return parameters_; }
  [[nodiscard]] TrainingCopy* copy() const { return copy_; }
  [[nodiscard]] std::uint64_t size() const { return parameters_.size(); }
  [[nodiscard]] const protocol::Fragments& fragments() const { return fragments_; }

  // The site has joined: sets the parameters to the anchor, and returns it.
  [[nodiscard]] Result<SealedAnchor> take_anchor() {
    const std::optional<SealedAnchor> anchor = arena_.sealed();
    COLLAB_CHECK(anchor.has_value(), "a site joined without an anchor");
    COLLAB_RETURN_IF_ERROR(change_parameters(parameters_, ParameterChange::kToAnchor, arena_.anchor(), {}));
    return *anchor;
  }

  // `merges`: the caller trains on, and merges the copy when the round is over.
  void begin_round(bool merges) {
    if (copy_ != nullptr) copy_->begin_round(merges);
  }
  [[nodiscard]] bool merges() const { return copy_ != nullptr && copy_->merges(); }
  // A round is done; `trained`: the site's samples at its trigger. Merged parameters differ between sites. So if a site
  // waits for a round that counts all its samples, it takes the anchor, whatever its weight was.
  [[nodiscard]] Status round_done(const protocol::RoundDone& done, std::uint64_t trained) {
    if (copy_ == nullptr || merges() || done.samples != trained) return {};
    copy_->before_write();
    return change_parameters(*copy_, ParameterChange::kToAnchor, arena_.anchor(), {},
                             fragments_.range_of(copy_->size(), done.round));
  }
  // What the site's ranks do with the copy; nullopt: there is none.
  [[nodiscard]] std::optional<TrainingCopy::End> end_round() {
    return copy_ == nullptr ? std::nullopt : std::optional(copy_->end_round(arena_.anchor()));
  }

 private:
  ArenaWriter& arena_;
  ParameterVector& parameters_;
  TrainingCopy* copy_;
  protocol::Fragments fragments_;
};

}  // namespace collab
