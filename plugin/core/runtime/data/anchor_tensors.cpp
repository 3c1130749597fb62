#include "core/runtime/data/anchor_tensors.h"

#include <algorithm>
#include <utility>

#include "core/outer/outer.h"
#include "core/protocol/coordinator/duplicate_data.h"

namespace collab {
namespace {

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

AnchorTensors::AnchorTensors(const DataSettings& settings, const DataParts& parts, ExchangeData& exchange,
                             AnchorStreams& streams, ParameterReader& reader, Residual& residual)
    : settings_(settings),
      parts_(parts),
      exchange_(exchange),
      streams_(streams),
      reader_(reader),
      residual_(residual) {}

void AnchorTensors::seal(const SealedAnchor& anchor) {
  parts_.arena->seal(anchor);
  exchange_.round_is_past(anchor.run, anchor.round);
}

Residual::Reader AnchorTensors::parameters() const {
  return [this](ElementRange range) { return reader_.at(range); };
}

void AnchorTensors::copy_passing(std::span<const float> from, std::span<float> to) const {
  for (std::uint64_t at = 0; at < from.size(); at += settings_.tile_elements) {
    const std::uint64_t count = std::min<std::uint64_t>(settings_.tile_elements, from.size() - at);
    std::ranges::copy(from.subspan(at, count), to.subspan(at).begin());
    passing();
  }
}

Status AnchorTensors::read_passing(std::uint64_t offset, std::span<float> out) {
  const std::uint64_t tile = parts_.parameters->tile();
  for (std::uint64_t at = 0; at < out.size(); at += tile) {
    const std::uint64_t count = std::min<std::uint64_t>(tile, out.size() - at);
    COLLAB_RETURN_IF_ERROR(parts_.parameters->read(offset + at, out.subspan(at, count)));
    passing();
  }
  return {};
}

Status AnchorTensors::change_passing(ParameterChange change, std::span<const float> anchor, Previous previous,
                                     ElementRange range) {
  const auto [begin, end] = common(range, {0, anchor.size()});
  const std::uint64_t tile = parts_.parameters->tile();
  for (std::uint64_t at = begin; at < end; at += tile) {
    const ElementRange part{at, std::min<std::uint64_t>(end, at + tile)};
    COLLAB_RETURN_IF_ERROR(change_parameters(*parts_.parameters, change, anchor, previous, part));
    passing();
  }
  return {};
}

Residual::Reader AnchorTensors::Snapshot::reader() const {
  return [this](ElementRange part) -> Result<std::span<const float>> {
    return std::span<const float>(values).subspan(part.begin - range.begin, part.size());
  };
}

void AnchorTensors::before_change(protocol::Base base, ElementRange range) {
  if (parts_.copy == nullptr) return;
  if (base == protocol::Base::kUnfit) parts_.copy->took_anchor();
  parts_.copy->before_write(range);
}

bool AnchorTensors::displaces_copy(protocol::Base base) const {
  return base == protocol::Base::kParameters && parts_.copy != nullptr && parts_.copy->merges();
}

void AnchorTensors::displace_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer,
                                  const RoundStep& step) {
  std::vector<float> mean;  // of the contributions; if the step was taken at once, the anchor itself
  if (!step.is_taken_at_once()) {
    mean.assign(tile.begin(), tile.end());
    outer_step({.id = OuterId::kAverage, .lr = 1.0F}, parts_.arena->anchor().subspan(begin, tile.size()), mean, {});
    step_from(begin, tile, outer, step);
  }
  parts_.copy->displace(begin, tile, mean.empty() ? std::span<const float>(tile) : mean);
}

void AnchorTensors::end_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer, const End& end) {
  if (end.sole) return;
  if (end.displaces) return displace_tile(begin, tile, outer, end.round.step);
  if (!end.round.step.is_taken_at_once()) step_from(begin, tile, outer, end.round.step);
}

void AnchorTensors::step_from(std::uint64_t begin, std::span<float> mean, std::span<float> outer,
                              const RoundStep& step) {
  step.take(begin, parts_.arena->anchor().subspan(begin, mean.size()), mean, outer);
}

Status AnchorTensors::follow(ElementRange stretch, const End& end) {
  if (end.sole || end.displaces || stretch.size() == 0) return {};
  const std::span<const float> next = parts_.arena->next_anchor().subspan(stretch.begin, stretch.size());
  const std::span<const float> base = end.base.subspan(stretch.begin - end.round.range.begin, stretch.size());
  return change_tile(*parts_.parameters, end.change, stretch.begin, next, {base, settings_.outer_elements});
}

Result<AppliedCommit> AnchorTensors::apply(const protocol::ApplyCommit& action) {
  ArenaWriter& arena = *parts_.arena;
  const std::optional<SealedAnchor> sealed = arena.sealed();
  COLLAB_CHECK(sealed.has_value(), "a commit reached a site without an anchor");
  streams_.forget();
  if (action.commit.contributors.empty()) return apply_nothing(action, *sealed);
  if (!exchange_.is_complete(action.commit.round, action.commit.attempt)) {
    return internal_error("a commit of round " + std::to_string(action.commit.round.value) + " attempt " +
                          std::to_string(action.commit.attempt.value) +
                          " came for an exchange that is not complete [round.commit-incomplete]");
  }
  const ExchangeData::Complete round = *exchange_.complete();
  const ElementRange range = round.range;
  if (!kept_mean_.empty()) copy_passing(kept_mean_, arena.mean().subspan(range.begin));
  const double clipped_norm = round.step.clip(arena.mean());
  const bool sole = round.step.averages_itself() && clipped_norm == 0 && action.base == protocol::Base::kParameters;
  const ParameterChange change = sole ? ParameterChange::kUnchanged : change_for(action.base);
  const Snapshot snapshot = std::exchange(snapshot_, {});
  COLLAB_CHECK(action.base != protocol::Base::kSnapshot || snapshot.range == range,
               "a commit is to be applied to parameters that have moved on, without a snapshot");
  COLLAB_RETURN_IF_ERROR(keep_left_out(action.base, snapshot));
  const End end{.round = round,
                .change = change,
                .sole = sole,
                .displaces = displaces_copy(action.base),
                .base = action.base == protocol::Base::kSnapshot ? std::span<const float>(snapshot.values)
                                                                 : arena.anchor().subspan(range.begin, range.size())};
  if (!arena.outer().empty()) arena.begin_outer_update();
  const bool unfit = action.base == protocol::Base::kUnfit;
  if (!sole && !end.displaces) before_change(action.base, unfit ? kWholeVector : range);
  const Result<Digest> state = step_anchor(sealed->digest, end);
  if (!state.ok()) return state.status();
  if (unfit) COLLAB_RETURN_IF_ERROR(change_passing(change, arena.next_anchor(), {}));
  seal(with_membership({sealed->run, action.commit.round, *state}, action.membership));
  return AppliedCommit{change, unfit ? kWholeVector : range, *state, round.step.lr(), clipped_norm};
}

// The anchor stays as it is; only the number of the round moves on.
Result<AppliedCommit> AnchorTensors::apply_nothing(const protocol::ApplyCommit& action, const SealedAnchor& sealed) {
  ArenaWriter& arena = *parts_.arena;
  copy_passing(arena.anchor(), arena.next_anchor());
  seal(with_membership({sealed.run, action.commit.round, sealed.digest}, action.membership));
  const bool unfit = action.base == protocol::Base::kUnfit;
  if (!unfit) return AppliedCommit{ParameterChange::kUnchanged, kWholeVector, sealed.digest};
  residual_.drop();
  before_change(action.base);
  COLLAB_RETURN_IF_ERROR(change_passing(ParameterChange::kToAnchor, arena.anchor(), {}));
  return AppliedCommit{ParameterChange::kToAnchor, kWholeVector, sealed.digest};
}

// Writes the next anchor into the free slot: the round's result for its fragment, and the rest as it is.
Result<Digest> AnchorTensors::step_anchor(const Digest& before, const End& end) {
  ArenaWriter& arena = *parts_.arena;
  const std::span<const float> anchor = arena.anchor();
  const std::span<float> next = arena.next_anchor();
  const std::span<float> outer = arena.outer();
  const bool whole = end.round.range == ElementRange{0, anchor.size()};
  const TileDigests known = std::exchange(tiles_, {});
  const bool is_known = known.state == before && !known.anchor.empty();
  DigestChain anchor_chain;
  DigestChain outer_chain;
  const auto end_of = [&](std::uint64_t begin, std::uint64_t most) {
    return std::min<std::uint64_t>(anchor.size(), begin + most);
  };
  // Works in whole tiles, in the unit in which the parameters are best read and written.
  const std::uint64_t tiles = std::max<std::uint64_t>(1, parts_.parameters->tile() / settings_.tile_elements);
  const std::uint64_t most = tiles * settings_.tile_elements;
  for (std::uint64_t begin = 0; begin < anchor.size(); begin += most) {
    const ElementRange stretch = common({begin, end_of(begin, most)}, end.round.range);
    if (end.sole) {
      COLLAB_RETURN_IF_ERROR(parts_.parameters->read(stretch.begin, next.subspan(stretch.begin, stretch.size())));
    }
    for (std::uint64_t at = begin; at < end_of(begin, most); at += settings_.tile_elements) {
      passing();
      const ElementRange tile{at, end_of(at, settings_.tile_elements)};
      const ElementRange moved = common(tile, end.round.range);
      std::ranges::copy(anchor.subspan(at, moved.size() > 0 ? moved.begin - at : tile.size()),
                        next.subspan(at).begin());
      if (moved.size() > 0) {
        const std::span<float> optimizer_state = outer.empty() ? outer : outer.subspan(moved.begin, moved.size());
        end_tile(moved.begin, next.subspan(moved.begin, moved.size()), optimizer_state, end);
        std::ranges::copy(anchor.subspan(moved.end, tile.end - moved.end), next.subspan(moved.end).begin());
      }
      const std::size_t number = at / settings_.tile_elements;
      const bool stands = moved.size() == 0 && is_known;
      const auto hashed = end.round.digests.find(at);
      const bool at_once = end.round.step.is_taken_at_once() && hashed != end.round.digests.end() &&
                           hashed->second.elements == tile.size();
      const Digest of_anchor = stands    ? known.anchor[number]
                               : at_once ? hashed->second.digest
                                         : hash128(as_bytes_of(next.subspan(at, tile.size())));
      anchor_chain.add(of_anchor);
      Digest of_outer;
      if (!outer.empty()) {
        of_outer = stands ? known.outer[number] : hash128(as_bytes_of(outer.subspan(at, tile.size())));
        outer_chain.add(of_outer);
      }
      if (whole) continue;
      tiles_.anchor.push_back(of_anchor);
      if (!outer.empty()) tiles_.outer.push_back(of_outer);
    }
    COLLAB_RETURN_IF_ERROR(follow(stretch, end));
  }
  return tiles_.state = digest_of_state(anchor_chain.finish(), outer.empty() ? Digest{} : outer_chain.finish());
}

// A site that owns elements and contributes none keeps of their mean what the contributors have not.
float AnchorTensors::taken_of_difference(protocol::Base base) const {
  if (base == protocol::Base::kSnapshot || parts_.copy == nullptr || !parts_.copy->merges()) return 1.0F;
  const Merge& merge = parts_.copy->settings().merge;
  return static_cast<float>(merge.rule == MergeRule::kRebase ? merge.factor : 1.0 - merge.factor);
}

Status AnchorTensors::keep_left_out(protocol::Base base, const Snapshot& snapshot) {
  const std::span<const float> anchor = parts_.arena->anchor();
  const float taken = taken_of_difference(base);
  switch (base) {
    case protocol::Base::kUnfit: residual_.drop(); [[fallthrough]];
    case protocol::Base::kOldAnchor: return residual_.commit(anchor, nullptr, taken);
    case protocol::Base::kParameters: return residual_.commit(anchor, parameters(), taken);
    case protocol::Base::kSnapshot: return residual_.commit(anchor, snapshot.reader(), taken);
  }
  return internal_error("no such base: " + std::to_string(static_cast<int>(base)));
}

Status AnchorTensors::rebase(protocol::Base base) {
  if (base == protocol::Base::kUnfit) residual_.drop();
  const Snapshot snapshot = std::exchange(snapshot_, {});
  const bool aside = base == protocol::Base::kSnapshot;
  if (aside && snapshot.range.size() == 0) {
    return internal_error(
        "the parameters are to be moved onto another anchor from values that were not kept [round.no-values]");
  }
  const std::span<float> previous = parts_.arena->previous_anchor();
  if (aside) {
    COLLAB_RETURN_IF_ERROR(residual_.assume_contributed(previous, snapshot.reader()));
  } else if (base == protocol::Base::kParameters) {
    COLLAB_RETURN_IF_ERROR(residual_.assume_contributed(previous, parameters()));
  }
  before_change(base);
  const auto change = [&](ParameterChange how, ElementRange range) {
    return change_passing(how, parts_.arena->anchor(), {previous, settings_.outer_elements}, range);
  };
  const ElementRange contributed = exchange_.contributed();
  // The contribution is in the new anchor. In its fragment the parameters move on from their values at that time.
  switch (base) {
    case protocol::Base::kUnfit: return change(ParameterChange::kToAnchor, kWholeVector);
    case protocol::Base::kOldAnchor: break;
    case protocol::Base::kSnapshot: copy_passing(snapshot.values, previous.subspan(snapshot.range.begin)); break;
    case protocol::Base::kParameters:
      COLLAB_RETURN_IF_ERROR(change(ParameterChange::kToAnchor, contributed));
      COLLAB_RETURN_IF_ERROR(change(ParameterChange::kRebased, {0, contributed.begin}));
      return change(ParameterChange::kRebased, {contributed.end, previous.size()});
  }
  return change(ParameterChange::kRebased, kWholeVector);
}

Status AnchorTensors::take_snapshot() {
  const ElementRange contributed = exchange_.contributed();
  snapshot_.range = contributed;
  snapshot_.values.resize(contributed.size());
  COLLAB_RETURN_IF_ERROR(read_passing(contributed.begin, snapshot_.values));
  keep_mean();
  return {};
}

// Later data in the free slot must not be mistaken for this mean: the attempt may still be committed.
void AnchorTensors::keep_mean() {
  const auto round = exchange_.complete();
  if (!round || !kept_mean_.empty()) return;
  const std::span<const float> mean = parts_.arena->mean().subspan(round->range.begin, round->range.size());
  kept_mean_.assign(mean.begin(), mean.end());
}

Status AnchorTensors::publish_parameters() {
  keep_mean();
  streams_.forget();
  return read_passing(0, parts_.arena->published());
}

// ---- between rounds -----------------------------------------------------------------------------------

bool AnchorTensors::is_unchanged() const {
  if (!parts_.arena->sealed()) return false;
  const std::span<const float> anchor = parts_.arena->anchor();
  std::uint64_t tile = 4096;  // the first tile nearly always shows it
  for (std::uint64_t at = 0; at < anchor.size(); at += std::exchange(tile, parts_.parameters->tile())) {
    const std::uint64_t count = std::min<std::uint64_t>(tile, anchor.size() - at);
    const Result<bool> same = parts_.parameters->holds(at, anchor.subspan(at, count));
    if (!same.ok() || !*same) return false;
  }
  return true;
}

std::vector<float> AnchorTensors::sample_delta() const {
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

Result<SealedAnchor> AnchorTensors::keep_anchor(const protocol::KeepAnchor& action) {
  const auto& [run, round, digest, membership] = action;
  ArenaWriter& arena = *parts_.arena;
  const std::optional<SealedAnchor> sealed = arena.sealed();
  const bool renamed = sealed && (sealed->digest == digest || streams_.outer_overwritten());
  residual_.settle(renamed ? sealed->run : run);  // the same anchor under another name
  if (sealed && sealed->run == run && sealed->round == round && !streams_.outer_overwritten()) return *sealed;
  if (!renamed && round.value != 0) {
    return internal_error("asked to keep the anchor of round " + std::to_string(round.value) +
                          ", which this site does not hold [round.anchor-not-held]");
  }
  streams_.forget();
  const std::span<float> slot = arena.next_anchor();
  const std::span<float> outer = arena.outer();
  SealedAnchor anchor{run, round, {}};
  if (!outer.empty()) arena.begin_outer_update();
  if (renamed) {
    copy_passing(arena.anchor(), slot);
    anchor.digest = streams_.outer_overwritten() ? state_digest(arena, slot, settings_.tile_elements, parts_.passing)
                                                 : sealed->digest;
  } else {
    COLLAB_RETURN_IF_ERROR(read_passing(0, slot));
    std::ranges::fill(outer, 0.0F);
    anchor.digest = state_digest(arena, slot, settings_.tile_elements, parts_.passing);
  }
  anchor = with_membership(std::move(anchor), membership);
  seal(anchor);
  streams_.outer_is_whole();
  return anchor;
}

}  // namespace collab
