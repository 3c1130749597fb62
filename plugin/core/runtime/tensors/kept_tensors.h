// Which elements of the vector travel at 16 bits whatever the codec (COLLAB_KEEP_FP16).
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collab/session.h"
#include "collab/types.h"

namespace collab {

inline constexpr std::uint64_t kSmallTensorElements = 65536;  // a tensor with fewer is small

struct KeptTensors {
  std::vector<ElementRange> ranges;    // ascending, apart
  std::vector<std::string> unmatched;  // words that match no tensor
};

// `words`: "none", or words with commas between them. "small" names the tensors of fewer than 65536 elements, any other
// word those whose names contain it. Elements from `buffers_from` on are kept whatever the words: a running statistic
// needs more bits. `model` has the tensors in the order of the vector of so many elements.
[[nodiscard]] KeptTensors kept_tensors(std::string_view words, std::span<const TensorInfo> model,
                                       std::uint64_t elements, std::uint64_t buffers_from);

}  // namespace collab
