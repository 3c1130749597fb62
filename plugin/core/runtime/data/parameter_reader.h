// Reads stretches of the parameters as plain float32 in host memory, without a copy if they are stored so.
//
// Threads: one caller at a time. Ownership: the memory of one stretch; borrows the parameters.
#pragma once

#include <span>
#include <vector>

#include "collab/session.h"

namespace collab {

class ParameterReader {
 public:
  explicit ParameterReader(ParameterVector& parameters) : parameters_(parameters) {}

  // Valid until the next call.
  Result<std::span<const float>> at(ElementRange range) {
    const std::span<float> view = parameters_.view(range.begin, range.size());
    if (!view.empty()) return std::span<const float>(view);
    staging_.resize(range.size());
    COLLAB_RETURN_IF_ERROR(parameters_.read(range.begin, staging_));
    return std::span<const float>(staging_);
  }

 private:
  ParameterVector& parameters_;
  std::vector<float> staging_;
};

}  // namespace collab
