// What goes with an anchor wherever it lies, in the arena or in a state file: the membership it was agreed on with. An
// anchor that came without could be taken for what a swarm of its own has agreed on.
//
// Threads and ownership: plain functions.
#pragma once

#include "core/arena/arena.h"
#include "core/protocol/actions.h"
#include "core/wire/messages.h"

namespace collab {

// As it is sealed.
[[nodiscard]] SealedAnchor with_membership(SealedAnchor anchor, const protocol::KnownMembership& membership);
// What a site knows, once it has found this anchor in the arena.
void take_membership(wire::Record& known, const SealedAnchor& sealed);

}  // namespace collab
