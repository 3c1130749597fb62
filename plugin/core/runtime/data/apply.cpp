// Parameters and anchor: the end of a round on real memory (the outer step, the new parameters, the seal), and what
// becomes of both between rounds.
#include <algorithm>
#include <utility>

#include "core/base/digest.h"
#include "core/protocol/coordinator/duplicate_data.h"
#include "core/runtime/data/data_plane.h"

namespace collab {
namespace {

Residual::Reader reader_of(std::span<const float> vector) {
  return [vector](ElementRange range) -> Result<std::span<const float>> {
    return vector.subspan(range.begin, range.size());
  };
}

ParameterChange change_for(protocol::Base base) {
  switch (base) {
    case protocol::Base::kParameters:
    case protocol::Base::kUnfit: return ParameterChange::kToAnchor;
    case protocol::Base::kOldAnchor:
    case protocol::Base::kSnapshot: return ParameterChange::kRebased;
  }
  return ParameterChange::kToAnchor;
}

}  // namespace

void DataPlane::before_change(protocol::Base base) {
  if (parts_.copy == nullptr) return;
  parts_.copy->before_write();
  if (base == protocol::Base::kUnfit) parts_.copy->took_anchor();
}

bool DataPlane::displaces_copy(protocol::Base base) const {
  return base == protocol::Base::kParameters && parts_.copy != nullptr && parts_.copy->merges();
}

void DataPlane::displace_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer) {
  std::vector<float> mean;  // of what was contributed, which is the anchor itself where the step was taken at once
  if (!steps_at_once()) {
    mean.assign(tile.begin(), tile.end());
    outer_step({.id = OuterId::kAverage, .lr = 1.0F}, parts_.arena->anchor().subspan(begin, tile.size()), mean, {});
    step_from(begin, tile, outer);
  }
  parts_.copy->displace(begin, tile, mean.empty() ? std::span<const float>(tile) : mean);
}

Status DataPlane::write_anchor_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer,
                                    ParameterChange change, std::span<const float> base) {
  if (!steps_at_once()) step_from(begin, tile, outer);
  return change_tile(*parts_.parameters, change, begin, tile, base);
}

Result<DataPlane::Applied> DataPlane::apply(const protocol::ApplyCommit& action) {
  ArenaWriter& arena = *parts_.arena;
  const std::optional<SealedAnchor> sealed = arena.sealed();
  COLLAB_CHECK(sealed.has_value(), "a commit reached a site without an anchor");
  anchors_.forget();
  if (action.commit.contributors.empty()) {  // the anchor stands, only the round's number moves on
    std::ranges::copy(arena.anchor(), arena.scratch().begin());
    seal(with_membership({sealed->run, action.commit.round, sealed->digest}, action.membership));
    const bool unfit = action.base == protocol::Base::kUnfit;
    if (unfit) residual_.drop();
    const ParameterChange change = unfit ? ParameterChange::kToAnchor : ParameterChange::kUnchanged;
    if (unfit) before_change(action.base);
    COLLAB_RETURN_IF_ERROR(change_parameters(*parts_.parameters, change, arena.anchor(), {}));
    cancel();
    forget_contributions();
    return Applied{change, sealed->digest};
  }
  if (!attempt_ || !attempt_->complete || attempt_->start.round != action.commit.round ||
      attempt_->start.attempt != action.commit.attempt) {
    return internal_error("a commit of round " + std::to_string(action.commit.round.value) + " attempt " +
                          std::to_string(action.commit.attempt.value) +
                          " came for an exchange that is not complete [round.commit-incomplete]");
  }
  if (!kept_mean_.empty()) std::ranges::copy(kept_mean_, arena.scratch().begin());
  const double clipped_norm = clip_mean();
  const bool sole = averages_itself() && clipped_norm == 0 && action.base == protocol::Base::kParameters;
  const ParameterChange change = sole ? ParameterChange::kUnchanged : change_for(action.base);
  const std::vector<float> snapshot = std::exchange(snapshot_, {});
  COLLAB_CHECK(action.base != protocol::Base::kSnapshot || snapshot.size() == arena.anchor().size(),
               "a commit is to be applied to parameters that have moved on, without a snapshot");
  COLLAB_RETURN_IF_ERROR(keep_left_out(action.base, snapshot));
  const std::span<const float> anchor = arena.anchor();
  const std::span<const float> base = action.base == protocol::Base::kSnapshot ? snapshot : anchor;
  const std::span<float> next = arena.scratch();
  const std::span<float> outer = arena.outer();
  if (!outer.empty()) arena.begin_outer_update();
  const bool displaces = displaces_copy(action.base);
  if (!sole && !displaces) before_change(action.base);
  DigestChain anchor_chain;
  DigestChain outer_chain;
  const std::uint64_t tile_elements = settings_.tile_elements;
  for (std::uint64_t at = 0; at < anchor.size(); at += tile_elements) {
    const std::uint64_t count = std::min<std::uint64_t>(tile_elements, anchor.size() - at);
    const std::span<float> tile = next.subspan(at, count);
    const std::span<float> optimizer_state = outer.empty() ? outer : outer.subspan(at, count);
    if (sole) {
      COLLAB_RETURN_IF_ERROR(parts_.parameters->read(at, tile));
    } else if (displaces) {
      displace_tile(at, tile, optimizer_state);
    } else {
      COLLAB_RETURN_IF_ERROR(write_anchor_tile(at, tile, optimizer_state, change, base.subspan(at, count)));
    }
    if (!sole && !optimizer_state.empty()) outer_chain.add(hash128(as_bytes_of(optimizer_state)));
    const auto known = attempt_->digests.find(at);
    const bool hashed = steps_at_once() && known != attempt_->digests.end() && known->second.elements == count;
    anchor_chain.add(hashed ? known->second.digest : hash128(as_bytes_of(tile)));
  }
  const Digest state = digest_of_state(anchor_chain.finish(), outer.empty() ? Digest{} : outer_chain.finish());
  seal(with_membership({sealed->run, action.commit.round, state}, action.membership));
  const float lr = attempt_->outer.lr;
  cancel();
  forget_contributions();
  return Applied{change, state, lr, clipped_norm};
}

double DataPlane::clip_mean() {
  if (!(settings_.outer.clip > 0)) return 0;
  const std::span<const float> mean = parts_.arena->scratch();
  const double norm = norm_of(mean.first(std::min<std::uint64_t>(mean.size(), settings_.outer_elements)));
  attempt_->shrink = clip_factor(settings_.outer.clip, norm);
  return attempt_->shrink == 1.0F ? 0 : norm;
}

Status DataPlane::keep_left_out(protocol::Base base, std::span<const float> snapshot) {
  const std::span<const float> anchor = parts_.arena->anchor();
  switch (base) {
    case protocol::Base::kUnfit: residual_.drop(); [[fallthrough]];
    case protocol::Base::kOldAnchor: return residual_.commit(anchor, nullptr);
    case protocol::Base::kParameters:
      return residual_.commit(anchor, [this](ElementRange range) { return parameters_at(range); });
    case protocol::Base::kSnapshot: return residual_.commit(anchor, reader_of(snapshot));
  }
  return internal_error("no such base: " + std::to_string(static_cast<int>(base)));
}

Status DataPlane::rebase(protocol::Base base) {
  if (base == protocol::Base::kUnfit) residual_.drop();
  const std::vector<float> snapshot = std::exchange(snapshot_, {});
  const bool aside = base == protocol::Base::kSnapshot;
  if (aside && snapshot.size() != parts_.arena->anchor().size()) {
    return internal_error(
        "the parameters are to be moved onto another anchor from values that were not set aside [round.no-values]");
  }
  const std::span<const float> previous = aside ? std::span<const float>(snapshot) : parts_.arena->scratch();
  if (base == protocol::Base::kSnapshot) {
    COLLAB_RETURN_IF_ERROR(residual_.assume_contributed(parts_.arena->scratch(), reader_of(snapshot)));
  } else if (base == protocol::Base::kParameters) {
    COLLAB_RETURN_IF_ERROR(residual_.assume_contributed(parts_.arena->scratch(),
                                                        [this](ElementRange range) { return parameters_at(range); }));
  }
  before_change(base);
  return change_parameters(*parts_.parameters, change_for(base), parts_.arena->anchor(), previous);
}

Status DataPlane::take_snapshot() {
  snapshot_.resize(parts_.parameters->size());
  COLLAB_RETURN_IF_ERROR(parts_.parameters->read(0, snapshot_));
  const std::span<const float> mean = parts_.arena->scratch();
  if (attempt_ && attempt_->complete) kept_mean_.assign(mean.begin(), mean.end());
  return {};
}

Status DataPlane::publish_parameters() {
  anchors_.forget();
  return parts_.parameters->read(0, parts_.arena->scratch());
}

// ---- between rounds -----------------------------------------------------------------------------------

bool DataPlane::is_unchanged() const {
  if (!parts_.arena->sealed()) return false;
  const std::span<const float> anchor = parts_.arena->anchor();
  constexpr std::uint64_t kTile = 4096;  // nearly always the first one tells
  for (std::uint64_t at = 0; at < anchor.size(); at += kTile) {
    const Result<bool> same =
        parts_.parameters->holds(at, anchor.subspan(at, std::min<std::uint64_t>(kTile, anchor.size() - at)));
    if (!same.ok() || !*same) return false;
  }
  return true;
}

std::vector<float> DataPlane::sample_delta() const {
  std::vector<float> sampled_delta;
  if (!parts_.arena->sealed()) return sampled_delta;
  const std::span<const float> anchor = parts_.arena->anchor();
  for (const std::uint64_t place : protocol::sample_of(anchor.size())) {
    float element = 0;
    if (!parts_.parameters->read(place, {&element, 1}).ok()) return {};
    sampled_delta.push_back(anchor[place] - element);
  }
  return sampled_delta;
}

Result<SealedAnchor> DataPlane::keep_anchor(const protocol::KeepAnchor& action) {
  const auto& [run, round, digest, membership] = action;
  ArenaWriter& arena = *parts_.arena;
  const std::optional<SealedAnchor> sealed = arena.sealed();
  const bool renamed = sealed && (sealed->digest == digest || anchors_.outer_overwritten());
  residual_.settle(renamed ? sealed->run : run);  // the same anchor under another name
  if (sealed && sealed->run == run && sealed->round == round && !anchors_.outer_overwritten()) return *sealed;
  if (!renamed && round.value != 0) {
    return internal_error("asked to keep the anchor of round " + std::to_string(round.value) +
                          ", which this site does not hold [round.anchor-not-held]");
  }
  anchors_.forget();
  const std::span<float> slot = arena.scratch();
  const std::span<float> outer = arena.outer();
  SealedAnchor anchor{run, round, {}};
  if (!outer.empty()) arena.begin_outer_update();
  if (renamed) {
    std::ranges::copy(arena.anchor(), slot.begin());
    anchor.digest = anchors_.outer_overwritten() ? state_digest(arena, slot, settings_.tile_elements) : sealed->digest;
  } else {
    COLLAB_RETURN_IF_ERROR(parts_.parameters->read(0, slot));
    std::ranges::fill(outer, 0.0F);
    anchor.digest = state_digest(arena, slot, settings_.tile_elements);
  }
  anchor = with_membership(std::move(anchor), membership);
  seal(anchor);
  anchors_.outer_is_whole();
  return anchor;
}

void DataPlane::receive_anchor(const protocol::ReceiveAnchor& action) {
  cancel();  // the scratch slot is needed
  forget_contributions();
  anchors_.receive(action);
}

}  // namespace collab
