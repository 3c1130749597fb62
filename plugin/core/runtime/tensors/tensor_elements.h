// How many elements a tensor of the model has.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "collab/session.h"

namespace collab {

[[nodiscard]] inline std::uint64_t elements_of(const TensorInfo& tensor) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : tensor.shape) elements *= extent;
  return elements;
}

}  // namespace collab
