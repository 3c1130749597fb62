#include "core/protocol/slice_table.h"

#include <algorithm>
#include <cmath>

namespace collab::protocol {

std::vector<wire::Slice> make_slices(std::uint64_t elements, std::span<const Share> shares) {
  double total = 0;
  std::size_t last_owner = shares.size();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].share <= 0) continue;
    total += shares[i].share;
    last_owner = i;
  }
  std::vector<wire::Slice> slices;
  if (elements == 0 || last_owner == shares.size()) return slices;

  const std::uint64_t grain =
      elements >= shares.size() * kCoarsePerSite * kCoarseElements ? kCoarseElements : kBlockElements;
  const std::uint64_t blocks = (elements + grain - 1) / grain;
  double sum = 0;
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i <= last_owner; ++i) {
    if (shares[i].share <= 0) continue;
    sum += shares[i].share;
    // The last owner takes what is left, whatever the sum was rounded to.
    const auto boundary = i == last_owner
                              ? blocks
                              : static_cast<std::uint64_t>(std::llround(static_cast<double>(blocks) * (sum / total)));
    const std::uint64_t end = std::min(elements, std::min(boundary, blocks) * grain);
    if (end <= begin) continue;
    slices.push_back({shares[i].site, {begin, end}});
    begin = end;
  }
  return slices;
}

}  // namespace collab::protocol
