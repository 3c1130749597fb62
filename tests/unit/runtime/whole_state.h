// Writes a state file from whole vectors, of the lengths that its header says.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "core/runtime/storage/disk.h"
#include "core/runtime/storage/state_file.h"

namespace collab {

inline Status write_state(const std::string& path, const StateHeader& header, std::span<const float> anchor,
                          std::span<const float> outer, std::span<const float> residual = {}) {
  const auto copy = [&](StatePart part, std::uint64_t offset, std::span<float> out) {
    const std::span<const float> from = part == StatePart::kAnchor  ? anchor
                                        : part == StatePart::kOuter ? outer
                                                                    : residual;
    std::ranges::copy(from.subspan(offset, out.size()), out.begin());
    return true;
  };
  return write_state(system_disk(), path, header, copy);
}

}  // namespace collab
