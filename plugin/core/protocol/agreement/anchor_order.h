// Which of two anchors is newer. An election uses this order to find the last agreement. Sites that go on under
// another run's name use it to choose their anchor. It also decides which of two swarms stays if both have gone on.
//
// Pure. Threads: any. Ownership: none.
#pragma once

#include <cstddef>

#include "core/wire/messages.h"

namespace collab::protocol {

// The swarm that has agreed more often stays, so a fresh swarm never replaces one that has trained. If both have agreed
// equally often, the later run stays. If neither has agreed yet, the larger membership stays (0: its size is not
// known).
[[nodiscard]] bool is_newer(const wire::Offer& a, std::size_t voters_of_a, const wire::Offer& b,
                            std::size_t voters_of_b);

// The order of two swarms that grow at the same pace must not flip. So the number of rounds decides only if one swarm
// is far ahead; otherwise a criterion decides that does not change with each round.
[[nodiscard]] inline bool is_far_ahead(RoundId a, RoundId b) { return a.value > 2 * b.value + 2; }

}  // namespace collab::protocol
