// Log lines for people, one for each message: "2026-11-24T21:52:34.123Z INFO collab[paris/0]: round 3: ...".
//
// Lines go to stderr. Once a queue is open, they wait in it instead: torch's module opens it, and one thread of Python
// takes records and hands them to Python's logging. No caller waits for that thread: lines that the queue cannot hold
// are counted, and the count is logged once there is room. A forked child has no queue, and writes to stderr.
//
// The logging library stays inside log.cpp: its fmt is another version than torch's.
// Threads: every function from any thread, but one at a time takes records. Messages below the level cost one relaxed
// load; a lock is held for moments only, never while the interpreter's is waited for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collab/status.h"

namespace collab {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

[[nodiscard]] Result<LogLevel> log_level_from_name(std::string_view name);  // "debug|info|warning|error|off"
[[nodiscard]] std::string_view name_of(LogLevel level);

// The level, and the site and rank that lines name. Until set: level info, and no name.
void set_log_level(LogLevel level);
void set_log_source(std::string_view site, std::optional<std::uint32_t> rank);
// What a session or a helper sets unless the program has: level and site. It does nothing if a queue is open, or if the
// site was set already, with the rank.
void suggest_log(LogLevel level, std::string_view site);
[[nodiscard]] bool log_enabled(LogLevel level);

// Line breaks in the text become " | ", and what a terminal would obey is shown.
void log_at(LogLevel level, std::string_view text);
void log_debug(std::string_view text);
void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_error(std::string_view text);

// ---- the queue ---------------------------------------------------------------------------------

struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  std::chrono::system_clock::time_point time;
  std::string site;
  std::optional<std::uint32_t> rank;
  std::string text;  // one line
};
// As printed on stderr, without the line break.
[[nodiscard]] std::string log_line(const LogRecord& record);

inline constexpr std::size_t kLogQueueCapacity = 4096;

// From here on records wait to be taken. On SIGABRT those that wait go to stderr, before what handled it so far.
// Does nothing while a queue is open.
void open_log_queue(std::size_t capacity = kLogQueueCapacity);
[[nodiscard]] bool log_queue_open();
// Takes the oldest record. Nothing if none came within `limit`, or if the queue is closed: log_queue_open() tells
// which. The next call confirms that the previous record was delivered.
[[nodiscard]] std::optional<LogRecord> take_log_record(std::chrono::milliseconds limit);
// True once all that waited has been taken and is where it belongs; false when that took longer.
bool flush_log(std::chrono::milliseconds limit);
// As flush_log; then what is left goes to stderr, and all later lines. Returns at once while no queue is open.
void close_log_queue(std::chrono::milliseconds limit);
// For the moment before the process ends: what waits goes to stderr now, then `text` as an error, whatever the level.
// The lock may be held by the caller: without it nothing else is written, and the line names no site.
void log_last_words(std::string_view text);

}  // namespace collab
