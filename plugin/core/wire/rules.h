// What must hold between the fields of one message, beyond the bounds of each: order, coverage, uniqueness.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "collab/status.h"
#include "core/wire/messages.h"

namespace collab::wire {

// kCorrupt names the field, what was expected and what came.
[[nodiscard]] Status check_rules(const Message& message);
[[nodiscard]] Status check_rules(const Record& record);
// What slices cover, which by the rules follow each other without gaps; empty of none.
[[nodiscard]] ElementRange covered_by(const std::vector<Slice>& slices);
// nullptr: the site has no part in the attempt.
[[nodiscard]] const Participant* participant_of(const StartAttempt& start, SiteId site);
// Its delta is in the mean: it has a weight.
[[nodiscard]] bool contributes(const StartAttempt& start, SiteId site);
// Nothing: there is no such setting. The text is that of `settings`.
[[nodiscard]] std::optional<std::string_view> value_of(const std::vector<Setting>& settings, std::string_view key);

}  // namespace collab::wire
