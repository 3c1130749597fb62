#include "core/runtime/tensors/kept_tensors.h"

#include <algorithm>

#include "core/runtime/tensors/tensor_elements.h"

namespace collab {
namespace {

constexpr std::string_view kNone = "none";
constexpr std::string_view kSmall = "small";

[[nodiscard]] std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> found;
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    found.push_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

// `range` begins at the end of the last one, or later.
void add(std::vector<ElementRange>& ranges, ElementRange range) {
  if (!ranges.empty() && ranges.back().end >= range.begin) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

KeptTensors kept_tensors(std::string_view words, std::span<const TensorInfo> model, std::uint64_t elements,
                         std::uint64_t buffers_from) {
  KeptTensors kept;
  const std::vector<std::string_view> names = words == kNone ? std::vector<std::string_view>() : split(words);
  std::vector<bool> matched(names.size(), false);
  std::uint64_t begin = 0;
  for (const TensorInfo& tensor : model) {
    if (tensor.kind != TensorKind::kAveraged) continue;
    const ElementRange range{begin, std::min(elements, begin + elements_of(tensor))};
    begin = range.end;
    bool keep = false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool small = names[i] == kSmall && range.size() < kSmallTensorElements;
      if (!small && tensor.name.find(names[i]) == std::string::npos) continue;
      keep = matched[i] = true;
    }
    if (keep && range.size() > 0) add(kept.ranges, range);
  }
  if (buffers_from < elements) {
    std::erase_if(kept.ranges, [&](const ElementRange& range) { return range.begin >= buffers_from; });
    if (!kept.ranges.empty()) kept.ranges.back().end = std::min(kept.ranges.back().end, buffers_from);
    add(kept.ranges, {buffers_from, elements});
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!matched[i] && names[i] != kSmall) kept.unmatched.emplace_back(names[i]);
  }
  return kept;
}

}  // namespace collab
