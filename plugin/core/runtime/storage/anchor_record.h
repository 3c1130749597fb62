// The membership that agreed on an anchor, stored with it in the arena and in a state file. An anchor without it could
// be mistaken for the agreement of a swarm of its own.
//
// Threads and ownership: plain functions.
#pragma once

#include "core/arena/arena.h"
#include "core/protocol/actions.h"
#include "core/wire/messages.h"

namespace collab {

// The anchor as it is sealed.
[[nodiscard]] SealedAnchor with_membership(SealedAnchor anchor, const protocol::KnownMembership& membership);
// Adds to `known` the membership of an anchor that was found in the arena.
void take_membership(wire::Record& known, const SealedAnchor& sealed);

}  // namespace collab
