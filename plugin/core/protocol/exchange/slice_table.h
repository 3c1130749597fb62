// Which site reduces which part of the vector.
//
// Equal shares make the exchange an all-reduce (reduce-scatter and all-gather). The caller may choose other shares:
// shares by bandwidth give DeDLOC's hybrid (arXiv:2106.10207), a single share gives a parameter server. Threads: pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/protocol/fragments.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct Share {
  SiteId site;
  double share = 1.0;  // relative to the others; 0 or less owns nothing
};

// Contiguous slices in the order of `shares`, covering `range` without gaps. Boundaries, counted from the range's
// begin, are multiples of kCoarseElements where that moves them little, else of kBlockElements. Empty slices are left
// out. Returns nothing if there is nothing to own, or no site to own it.
inline constexpr std::uint64_t kCoarsePerSite = 64;  // with fewer per site, rounding would make slices unequal
[[nodiscard]] std::vector<wire::Slice> make_slices(ElementRange range, std::span<const Share> shares);

// The table without some of its owners. Sites that have a share keep their slices, because these already hold
// contributions. The slices of the other owners are divided by `shares`.
// The result may be lopsided.
[[nodiscard]] std::vector<wire::Slice> pass_on(const std::vector<wire::Slice>& slices, std::span<const Share> shares);

// True if a site owns so much more than its share that a new table is better, although some data is then sent again.
[[nodiscard]] bool lopsided(const std::vector<wire::Slice>& slices, std::span<const Share> shares);

}  // namespace collab::protocol
