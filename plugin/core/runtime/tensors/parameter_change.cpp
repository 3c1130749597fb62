#include "core/runtime/tensors/parameter_change.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "core/base/float_environment.h"

namespace collab {
namespace {

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

// parameters := change(parameters, values). In place if they are float32 in host memory.
template <typename Change>
Status change_each(ParameterVector& parameters, std::uint64_t offset, std::span<const float> values,
                   const Change& change) {
  const FloatEnvironment ieee;
  std::vector<float> staging;
  const std::uint64_t tile = parameters.tile();
  for (std::uint64_t at = 0; at < values.size(); at += tile) {
    const std::span<const float> part = values.subspan(at, std::min<std::uint64_t>(tile, values.size() - at));
    std::span<float> here = parameters.view(offset + at, part.size());
    const bool in_place = !here.empty();
    if (!in_place) {
      staging.resize(part.size());
      COLLAB_RETURN_IF_ERROR(parameters.read(offset + at, staging));
      here = staging;
    }
    for (std::size_t i = 0; i < part.size(); ++i) here[i] = change(here[i], part[i]);
    if (!in_place) COLLAB_RETURN_IF_ERROR(parameters.write(offset + at, staging));
  }
  return {};
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

Status ParameterVector::add(std::uint64_t offset, std::span<const float> values) {
  return change_each(*this, offset, values, [](float now, float by) { return now + by; });
}

Status ParameterVector::mix(std::uint64_t offset, std::span<const float> values, float kept) {
  const float taken = 1.0F - kept;
  return change_each(*this, offset, values, [=](float now, float other) { return kept * now + taken * other; });
}

Status change_parameters(ParameterVector& parameters, ParameterChange change, std::span<const float> anchor,
                         Previous previous, ElementRange range) {
  const auto [begin, end] = common(range, {0, anchor.size()});
  const std::uint64_t tile = parameters.tile();
  for (std::uint64_t at = begin; at < end; at += tile) {
    const std::uint64_t count = std::min(tile, end - at);
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
  const std::uint64_t trained = std::min<std::uint64_t>(settings.trained, copy.size());
  const auto [begin, end] = common(range, {0, trained});
  const std::span<const float> values = copy.subspan(begin, end - begin);
  const Status merged = change == ParameterChange::kMoved ? parameters.add(begin, values)
                        : change == ParameterChange::kMixed
                            ? parameters.mix(begin, values, static_cast<float>(settings.merge.factor))
                            : parameters.write(begin, values);
  COLLAB_RETURN_IF_ERROR(merged);
  const ElementRange buffers = common(range, {trained, copy.size()});
  return parameters.write(buffers.begin, copy.subspan(buffers.begin, buffers.size()));
}

Result<Digest> digest_of_parameters(ParameterVector& parameters, std::uint64_t elements) {
  const std::uint64_t end = std::min(elements, parameters.size());
  DigestChain chain;
  std::vector<float> staging;
  const std::uint64_t tile = parameters.tile();
  for (std::uint64_t at = 0; at < end; at += tile) {
    const std::uint64_t count = std::min(tile, end - at);
    std::span<const float> part = parameters.view(at, count);
    if (part.empty()) {
      staging.resize(count);
      COLLAB_RETURN_IF_ERROR(parameters.read(at, staging));
      part = staging;
    }
    for (std::uint64_t chunk = 0; chunk < count; chunk += kDigestChunkElements) {
      chain.add(hash128(as_bytes_of(part.subspan(chunk, std::min(kDigestChunkElements, count - chunk)))));
    }
  }
  return chain.finish();
}

}  // namespace collab
