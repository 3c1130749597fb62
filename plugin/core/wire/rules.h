// What must hold between the fields of one message, beyond the bounds of each: order, coverage, uniqueness.
//
// Threads: pure functions.
#pragma once

#include <vector>

#include "collab/status.h"
#include "core/wire/messages.h"

namespace collab::wire {

// kCorrupt names the field, what was expected and what came.
[[nodiscard]] Status check_rules(const Message& message);
[[nodiscard]] Status check_rules(const Record& record);
// What slices cover, which by the rules follow each other without gaps; empty of none.
[[nodiscard]] ElementRange covered_by(const std::vector<Slice>& slices);

}  // namespace collab::wire
