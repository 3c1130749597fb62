// What a round does to a site's parameters, and how each of its ranks does it.
//
// Threads: the caller's; nothing else touches the parameters meanwhile. Ownership: borrows all it is given.
#pragma once

#include <cstdint>
#include <span>

#include "collab/config.h"
#include "collab/session.h"

namespace collab {

// The site's other ranks repeat the change from the arena.
enum class ParameterChange : std::uint32_t {
  kUnchanged = 0,  // a sole contributor's average is its own parameters
  kToAnchor = 1,   // parameters := new anchor
  // parameters := new anchor + (parameters - old anchor): progress that was not contributed. buffers := new anchor,
  // because a running statistic follows the data: its own change must not be added to the others'
  kRebased = 2,
  kTakeOther = 3,  // parameters := the arena's other slot, where the leader has put its own
  // For rounds behind the training, with the content of the arena's training copy:
  kMoved = 4,     // parameters += the copy; buffers := the copy
  kMixed = 5,     // parameters := factor * parameters + (1 - factor) * the copy; buffers := the copy
  kTakeCopy = 6,  // parameters := the copy
};

[[nodiscard]] constexpr bool takes_copy(ParameterChange change) { return change >= ParameterChange::kMoved; }

inline constexpr ElementRange kWholeVector{0, UINT64_MAX};

// What kRebased and kTakeOther need in addition; else empty.
struct Previous {
  std::span<const float> values;
  std::uint64_t trained;  // elements of the vector from here on are buffers
};

// parameters := anchor, or rebased, or left alone, in tiles: those in `range`. `anchor` and `previous` are whole.
Status change_parameters(ParameterVector& parameters, ParameterChange change, std::span<const float> anchor,
                         Previous previous, ElementRange range = kWholeVector);

// The same for one tile of them, which begins at `offset`.
Status change_tile(ParameterVector& parameters, ParameterChange change, std::uint64_t offset,
                   std::span<const float> anchor, Previous previous);

struct MergeSettings {
  Merge merge;
  std::uint64_t trained = UINT64_MAX;  // elements from here on are buffers
};

// A change that takes the copy, in tiles: of the elements in `range`; `copy` is whole. The same bits at all ranks of a
// host.
Status merge_copy(ParameterVector& parameters, ParameterChange change, std::span<const float> copy,
                  const MergeSettings& settings, ElementRange range = kWholeVector);

// The digest of the first `elements`, at most all.
[[nodiscard]] Result<Digest> digest_of_parameters(ParameterVector& parameters, std::uint64_t elements = UINT64_MAX);

}  // namespace collab
