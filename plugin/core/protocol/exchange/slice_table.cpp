#include "core/protocol/exchange/slice_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

namespace collab::protocol {

std::vector<wire::Slice> make_slices(ElementRange range, std::span<const Share> shares) {
  const std::uint64_t elements = range.size();
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
    // The last owner takes the rest, whatever rounding did to the sum.
    const auto boundary = i == last_owner
                              ? blocks
                              : static_cast<std::uint64_t>(std::llround(static_cast<double>(blocks) * (sum / total)));
    const std::uint64_t end = std::min(elements, std::min(boundary, blocks) * grain);
    if (end <= begin) continue;
    slices.push_back({shares[i].site, {range.begin + begin, range.begin + end}});
    begin = end;
  }
  return slices;
}

std::vector<wire::Slice> pass_on(const std::vector<wire::Slice>& slices, std::span<const Share> shares) {
  std::vector<wire::Slice> passed;
  for (const wire::Slice& slice : slices) {
    const bool stays = std::any_of(shares.begin(), shares.end(),
                                   [&](const Share& share) { return share.site == slice.owner && share.share > 0; });
    if (stays) {
      passed.push_back(slice);
      continue;
    }
    std::ranges::move(make_slices(slice.range, shares), std::back_inserter(passed));
  }
  return passed;
}

bool lopsided(const std::vector<wire::Slice>& slices, std::span<const Share> shares) {
  constexpr double kMost = 1.5;  // if two of three owners are left, this is exactly their due
  if (slices.empty()) return false;
  std::map<SiteId, std::uint64_t> owned;
  for (const wire::Slice& slice : slices) owned[slice.owner] += slice.range.size();
  double total = 0;
  for (const Share& share : shares) total += std::max(share.share, 0.0);
  const auto elements = static_cast<double>(covered_by(slices).size());
  return std::any_of(shares.begin(), shares.end(), [&](const Share& share) {
    const auto mine = owned.find(share.site);
    return mine != owned.end() && static_cast<double>(mine->second) > kMost * elements * share.share / total;
  });
}

}  // namespace collab::protocol
