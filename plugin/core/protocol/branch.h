// Branches: runs of a minority (COLLAB_QUORUM_TIMEOUT), and which of two runs gives way to the other.
//
// Threads and ownership: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "core/wire/messages.h"

namespace collab::protocol {

// Whether `a` stays and `b` gives way: a branch to the run it branched from, of two branches of one run the one that
// has learned from less. Nothing where the two are not related so.
[[nodiscard]] std::optional<bool> trunk_first(const wire::Offer& a, const wire::Offer& b);

// What a committed attempt adds to a branch's samples.
[[nodiscard]] std::uint64_t weight_of(const wire::Form& form);

}  // namespace collab::protocol
