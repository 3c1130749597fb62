// Which part of the vector a round averages (COLLAB_FRAGMENTS): fragments take turns, round by round.
//
// With n fragments, each is averaged in every n-th round. So a round moves an n-th of the bytes, and its result is
// merged in less time; the total of bytes is the same. This is the sequential pattern of Streaming DiLoCo
// (arXiv:2501.18512): a fragment is one run of elements, so fragments are equally large whatever the tensors are.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collab/types.h"
#include "core/base/knobs.h"  // kMostFragments
#include "core/wire/messages.h"
#include "core/wire/rules.h"

namespace collab::protocol {

// The default length of a chunk, and the length of a part of the vector's digest.
inline constexpr std::uint64_t kCoarseElements = std::uint64_t{64} * 1024;

struct Fragments {
  std::uint32_t count = 1;

  // The fragment that this round averages; rounds count from 1.
  [[nodiscard]] std::uint32_t in_turn(RoundId round) const {
    return static_cast<std::uint32_t>((round.value + count - 1) % count);
  }
  // Fragments ascend without gaps and cover a vector of at least least_elements(). Their lengths differ by at most one
  // grain: at most a sixteenth of a fragment if the vector is large, a larger part if a fragment has few blocks.
  [[nodiscard]] ElementRange range(std::uint64_t elements, std::uint32_t fragment) const;
  [[nodiscard]] ElementRange range_of(std::uint64_t elements, RoundId round) const {
    return range(elements, in_turn(round));
  }
  // A shorter vector cannot be divided.
  [[nodiscard]] std::uint64_t least_elements() const { return count == 1 ? 0 : count * kBlockElements; }
};

using wire::covered_by;  // the fragment that slices belong to
// A vector that cannot be divided into `count` fragments has one fragment.
[[nodiscard]] Fragments fragments_for(std::uint32_t count, std::uint64_t elements);
// The fragments that the shared settings ask for.
[[nodiscard]] Fragments fragments_of(const std::vector<wire::Setting>& settings, std::uint64_t elements);

}  // namespace collab::protocol
