// Which of two anchors is newer. An election uses this order to find what was agreed on last. Sites that go on under
// another run's name use it to choose their anchor. Also: which of two swarms stays if both have gone on.
//
// Pure. Threads: any. Ownership: none.
#pragma once

#include <cstddef>

#include "core/wire/messages.h"

namespace collab::protocol {

// Of two swarms the one that has agreed more often stays: a fresh one never takes the place of one that has trained. Of
// two that have agreed equally often, the later run; of two that have not agreed yet, the one with the larger
// membership (0: it is not known).
[[nodiscard]] bool is_newer(const wire::Offer& a, std::size_t voters_of_a, const wire::Offer& b,
                            std::size_t voters_of_b);

// The order of two swarms that grow at the same pace must not flip. So the number of rounds decides only if one is far
// ahead; otherwise something decides that does not change with each round.
[[nodiscard]] inline bool is_far_ahead(RoundId a, RoundId b) { return a.value > 2 * b.value + 2; }

}  // namespace collab::protocol
