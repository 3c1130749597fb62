// The rules between the fields of one message, beyond the bounds of each: order, coverage, uniqueness.
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
// The range that slices cover; by the rules they have no gaps. Empty if there are no slices.
[[nodiscard]] ElementRange covered_by(const std::vector<Slice>& slices);
// nullptr: the site does not take part in the attempt.
[[nodiscard]] const Participant* participant_of(const StartAttempt& start, SiteId site);
// Whether the site has a weight, so that its delta is in the mean.
[[nodiscard]] bool contributes(const StartAttempt& start, SiteId site);
// Nothing if there is no such setting. The text belongs to `settings`.
[[nodiscard]] std::optional<std::string_view> value_of(const std::vector<Setting>& settings, std::string_view key);

}  // namespace collab::wire
