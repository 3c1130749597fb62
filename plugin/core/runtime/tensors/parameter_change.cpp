#include "core/runtime/tensors/parameter_change.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "core/base/float_environment.h"

namespace collab {
namespace {

// Small enough to stay in cache between what is done to it.
constexpr std::uint64_t kTile = kDigestChunkElements;

// parameters := anchor + (parameters - previous), and buffers := anchor, one tile.
Status rebase_tile(ParameterVector& parameters, std::uint64_t offset, std::span<const float> anchor,
                   const Previous& previous) {
  const ElementRange trained = common({offset, offset + anchor.size()}, {0, previous.trained});
  std::vector<float> tile(anchor.begin(), anchor.end());
  COLLAB_RETURN_IF_ERROR(parameters.read(offset, std::span(tile).first(trained.size())));
  for (std::size_t i = 0; i < trained.size(); ++i) tile[i] = anchor[i] + (tile[i] - previous.values[i]);
  return parameters.write(offset, tile);
}

Status write_tile(ParameterVector& parameters, std::uint64_t offset, std::span<const float> from) {
  const std::span<float> view = parameters.view(offset, from.size());
  if (view.empty()) return parameters.write(offset, from);
  std::memcpy(view.data(), from.data(), from.size_bytes());
  return {};
}

Status no_such(ParameterChange change) {
  return internal_error("no such parameter change here: " + std::to_string(static_cast<std::uint32_t>(change)) +
                        " [round.parameter-change]");
}

void move(std::span<float> parameters, std::span<const float> copy) {
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] += copy[i];
}

void mix(std::span<float> parameters, std::span<const float> copy, float kept) {
  const float taken = 1.0F - kept;
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = kept * parameters[i] + taken * copy[i];
}

// One tile of trained parameters, in place where they lie as float32 in host memory.
Status merge_tile(ParameterVector& parameters, ParameterChange change, std::uint64_t offset,
                  std::span<const float> copy, float factor) {
  if (change == ParameterChange::kTakeCopy) return write_tile(parameters, offset, copy);
  std::vector<float> staging;
  std::span<float> here = parameters.view(offset, copy.size());
  const bool in_place = !here.empty();
  if (!in_place) {
    staging.resize(copy.size());
    COLLAB_RETURN_IF_ERROR(parameters.read(offset, staging));
    here = staging;
  }
  if (change == ParameterChange::kMoved) {
    move(here, copy);
  } else {
    mix(here, copy, factor);
  }
  return in_place ? Status() : parameters.write(offset, staging);
}

}  // namespace

Status change_tile(ParameterVector& parameters, ParameterChange change, std::uint64_t offset,
                   std::span<const float> anchor, Previous previous) {
  switch (change) {
    case ParameterChange::kUnchanged: return {};
    case ParameterChange::kToAnchor: return write_tile(parameters, offset, anchor);
    case ParameterChange::kRebased: return rebase_tile(parameters, offset, anchor, previous);
    case ParameterChange::kTakeOther: return write_tile(parameters, offset, previous.values);
    case ParameterChange::kMoved:
    case ParameterChange::kMixed:
    case ParameterChange::kTakeCopy: break;
  }
  return no_such(change);
}

Result<bool> ParameterVector::holds(std::uint64_t offset, std::span<const float> values) {
  const std::span<const float> here = view(offset, values.size());
  if (!here.empty()) return std::ranges::equal(as_bytes_of(here), as_bytes_of(values));
  std::vector<float> staging(values.size());
  COLLAB_RETURN_IF_ERROR(read(offset, staging));
  return std::ranges::equal(as_bytes_of(std::span<const float>(staging)), as_bytes_of(values));
}

Status change_parameters(ParameterVector& parameters, ParameterChange change, std::span<const float> anchor,
                         Previous previous, ElementRange range) {
  const auto [begin, end] = common(range, {0, anchor.size()});
  for (std::uint64_t at = begin; at < end; at += kTile) {
    const std::uint64_t count = std::min(kTile, end - at);
    const auto before = previous.values.empty() ? previous.values : previous.values.subspan(at, count);
    COLLAB_RETURN_IF_ERROR(change_tile(parameters, change, at, anchor.subspan(at, count), {before, previous.trained}));
  }
  return {};
}

Status merge_copy(ParameterVector& parameters, ParameterChange change, std::span<const float> copy,
                  const MergeSettings& settings, ElementRange range) {
  if (change == ParameterChange::kUnchanged) return {};
  if (!takes_copy(change)) return no_such(change);
  if (copy.size() != parameters.size()) return internal_error("there is no training copy to merge [round.no-copy]");
  const FloatEnvironment ieee;
  const auto factor = static_cast<float>(settings.merge.factor);
  const ElementRange trained = common(range, {0, std::min<std::uint64_t>(settings.trained, copy.size())});
  for (std::uint64_t at = trained.begin; at < trained.end; at += kTile) {
    const std::uint64_t count = std::min(kTile, trained.end - at);
    COLLAB_RETURN_IF_ERROR(merge_tile(parameters, change, at, copy.subspan(at, count), factor));
  }
  const ElementRange buffers = common(range, {std::min<std::uint64_t>(settings.trained, copy.size()), copy.size()});
  for (std::uint64_t at = buffers.begin; at < buffers.end; at += kTile) {
    const std::uint64_t count = std::min(kTile, buffers.end - at);
    COLLAB_RETURN_IF_ERROR(write_tile(parameters, at, copy.subspan(at, count)));
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

}  // namespace collab
