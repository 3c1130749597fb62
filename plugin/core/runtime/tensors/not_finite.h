// Which tensor makes a delta unfit to be averaged, in words that say what to do about it.
//
// Threads: the caller's; the parameters stand still meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collab/session.h"

namespace collab {

// The first element of anchor - parameters that is not finite: the tensor it belongs to and why. Empty: all are finite.
// `model` has the tensors in the vector's order; elements from `buffers_from` on are buffers'.
[[nodiscard]] std::string not_finite_text(ParameterVector& parameters, std::span<const float> anchor,
                                          std::span<const TensorInfo> model, std::uint64_t buffers_from);

}  // namespace collab
