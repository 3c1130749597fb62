// What is stored with an anchor, in the arena and in a state file: the membership that agreed on it. An anchor without
// it could be mistaken for the agreement of a swarm of its own.
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
