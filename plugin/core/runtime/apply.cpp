// The end of a round on real memory: the outer step, the new parameters, the seal.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/digest.h"
#include "core/runtime/data_plane.h"

namespace collab {
namespace {

// Small enough to stay in cache between the outer step, the digest and the write.
constexpr std::uint64_t kTile = kDigestChunkElements;

// parameters := anchor + (parameters - previous), one tile.
Status rebase_tile(ParameterVector& parameters, std::uint64_t offset, std::span<const float> anchor,
                   std::span<const float> previous) {
  std::vector<float> tile(anchor.size());
  COLLAB_RETURN_IF_ERROR(parameters.read(offset, tile));
  for (std::size_t i = 0; i < tile.size(); ++i) tile[i] = anchor[i] + (tile[i] - previous[i]);
  return parameters.write(offset, tile);
}

Status write_tile(ParameterVector& parameters, std::uint64_t offset, std::span<const float> from) {
  const std::span<float> view = parameters.view(offset, from.size());
  if (view.empty()) return parameters.write(offset, from);
  std::memcpy(view.data(), from.data(), from.size_bytes());
  return {};
}

Status change_tile(ParameterVector& parameters, ParameterChange change, std::uint64_t offset,
                   std::span<const float> anchor, std::span<const float> previous) {
  switch (change) {
    case ParameterChange::kUnchanged: return {};
    case ParameterChange::kToAnchor:
    case ParameterChange::kTookAnchor: return write_tile(parameters, offset, anchor);
    case ParameterChange::kRebased: return rebase_tile(parameters, offset, anchor, previous);
    case ParameterChange::kTakeOther: return write_tile(parameters, offset, previous);
  }
  return internal_error("no such parameter change: " + std::to_string(static_cast<std::uint32_t>(change)));
}

Residual::Reader reader_of(std::span<const float> vector) {
  return [vector](ElementRange range) -> Result<std::span<const float>> {
    return vector.subspan(range.begin, range.size());
  };
}

ParameterChange change_for(protocol::Base base) {
  switch (base) {
    case protocol::Base::kParameters: return ParameterChange::kToAnchor;
    case protocol::Base::kOldAnchor:
    case protocol::Base::kSnapshot: return ParameterChange::kRebased;
    case protocol::Base::kUnfit: return ParameterChange::kTookAnchor;
  }
  return ParameterChange::kToAnchor;
}

}  // namespace

Result<bool> ParameterVector::holds(std::uint64_t offset, std::span<const float> values) {
  const std::span<const float> here = view(offset, values.size());
  if (!here.empty()) return std::ranges::equal(as_bytes_of(here), as_bytes_of(values));
  std::vector<float> staging(values.size());
  COLLAB_RETURN_IF_ERROR(read(offset, staging));
  return std::ranges::equal(as_bytes_of(std::span<const float>(staging)), as_bytes_of(values));
}

Status change_parameters(ParameterVector& parameters, ParameterChange change, std::span<const float> anchor,
                         std::span<const float> previous) {
  for (std::uint64_t at = 0; at < anchor.size(); at += kTile) {
    const std::uint64_t count = std::min<std::uint64_t>(kTile, anchor.size() - at);
    const std::span<const float> before = previous.empty() ? previous : previous.subspan(at, count);
    COLLAB_RETURN_IF_ERROR(change_tile(parameters, change, at, anchor.subspan(at, count), before));
  }
  return {};
}

Result<Digest> digest_of_parameters(ParameterVector& parameters, std::uint64_t elements) {
  const std::uint64_t end = std::min(elements, parameters.size());
  DigestChain chain;
  std::vector<float> staging;
  for (std::uint64_t at = 0; at < end; at += kTile) {
    const std::uint64_t count = std::min<std::uint64_t>(kTile, end - at);
    std::span<const float> tile = parameters.view(at, count);
    if (tile.empty()) {
      staging.resize(count);
      COLLAB_RETURN_IF_ERROR(parameters.read(at, staging));
      tile = staging;
    }
    chain.add(hash128(as_bytes_of(tile)));
  }
  return chain.finish();
}

Result<DataPlane::Applied> DataPlane::apply(const protocol::ApplyCommit& action) {
  ArenaWriter& arena = *parts_.arena;
  const std::optional<SealedAnchor> sealed = arena.sealed();
  COLLAB_CHECK(sealed.has_value(), "a commit reached a site without an anchor");
  forget_received();
  if (action.commit.contributors.empty()) {  // the anchor stands, only the round's number moves on
    std::ranges::copy(arena.anchor(), arena.scratch().begin());
    seal(with_membership({sealed->run, action.commit.round, sealed->digest}, action.membership));
    const bool unfit = action.base == protocol::Base::kUnfit;
    if (unfit) residual_.drop();
    const ParameterChange change = unfit ? ParameterChange::kTookAnchor : ParameterChange::kUnchanged;
    COLLAB_RETURN_IF_ERROR(change_parameters(*parts_.parameters, change, arena.anchor(), {}));
    cancel();
    forget_contributions();
    return Applied{change, sealed->digest};
  }
  if (!attempt_ || !attempt_->complete || attempt_->start.round != action.commit.round ||
      attempt_->start.attempt != action.commit.attempt) {
    return internal_error("a commit of round " + std::to_string(action.commit.round.value) + " attempt " +
                          std::to_string(action.commit.attempt.value) + " came for an exchange that is not complete");
  }
  const bool sole = averages_itself() && action.base == protocol::Base::kParameters;
  const ParameterChange change = sole ? ParameterChange::kUnchanged : change_for(action.base);
  const std::vector<float> snapshot = std::exchange(snapshot_, {});
  COLLAB_CHECK(action.base != protocol::Base::kSnapshot || snapshot.size() == arena.anchor().size(),
               "a commit is to be applied to parameters that have moved on, without a snapshot");
  COLLAB_RETURN_IF_ERROR(keep_left_out(action.base, snapshot));
  const std::span<const float> anchor = arena.anchor();
  if (!kept_mean_.empty()) std::ranges::copy(kept_mean_, arena.scratch().begin());
  const std::span<const float> base = action.base == protocol::Base::kSnapshot ? snapshot : anchor;
  const std::span<float> next = arena.scratch();
  const std::span<float> outer = arena.outer();
  if (!outer.empty()) arena.begin_outer_update();
  DigestChain anchor_chain;
  DigestChain outer_chain;
  const std::uint64_t tile_elements = settings_.tile_elements;
  for (std::uint64_t at = 0; at < anchor.size(); at += tile_elements) {
    const std::uint64_t count = std::min<std::uint64_t>(tile_elements, anchor.size() - at);
    const std::span<float> tile = next.subspan(at, count);
    if (sole) {
      COLLAB_RETURN_IF_ERROR(parts_.parameters->read(at, tile));
    } else if (!steps_at_once()) {
      const std::span<float> optimizer_state = outer.empty() ? outer : outer.subspan(at, count);
      step_from(at, tile, optimizer_state);
      if (!optimizer_state.empty()) outer_chain.add(hash128(as_bytes_of(optimizer_state)));
    }
    const auto known = attempt_->digests.find(at);
    const bool hashed = steps_at_once() && known != attempt_->digests.end() && known->second.elements == count;
    anchor_chain.add(hashed ? known->second.digest : hash128(as_bytes_of(tile)));
    COLLAB_RETURN_IF_ERROR(change_tile(*parts_.parameters, change, at, tile, base.subspan(at, count)));
  }
  const Digest state = digest_of_state(anchor_chain.finish(), outer.empty() ? Digest{} : outer_chain.finish());
  seal(with_membership({sealed->run, action.commit.round, state}, action.membership));
  cancel();
  forget_contributions();
  return Applied{change, state};
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
    return internal_error("the parameters are to be moved onto another anchor from values that were not set aside");
  }
  const std::span<const float> previous = aside ? std::span<const float>(snapshot) : parts_.arena->scratch();
  if (base == protocol::Base::kSnapshot) {
    COLLAB_RETURN_IF_ERROR(residual_.assume_contributed(parts_.arena->scratch(), reader_of(snapshot)));
  } else if (base == protocol::Base::kParameters) {
    COLLAB_RETURN_IF_ERROR(residual_.assume_contributed(parts_.arena->scratch(),
                                                        [this](ElementRange range) { return parameters_at(range); }));
  }
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
  forget_received();
  return parts_.parameters->read(0, parts_.arena->scratch());
}

}  // namespace collab
