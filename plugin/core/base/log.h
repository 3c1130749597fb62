// What a person reads: one line a message on stderr, "collab[paris]: round 3 committed ...".
//
// The logging library stays inside log.cpp: its fmt is another version than torch's.
// Threads: every function from any thread. Messages below the level cost one relaxed load.
#pragma once

#include <cstdint>
#include <string_view>

#include "collab/status.h"

namespace collab {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

[[nodiscard]] Result<LogLevel> log_level_from_name(std::string_view name);  // "debug|info|warning|error|off"

// `prefix` stands in the brackets: the site's name; empty: "collab: ...". Until called: info, no prefix.
void set_log(LogLevel level, std::string_view prefix);
[[nodiscard]] bool log_enabled(LogLevel level);

// Line breaks in the text become " | ".
void log_debug(std::string_view text);
void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_error(std::string_view text);

}  // namespace collab
