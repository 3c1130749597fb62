// Log lines for people, one for each message: "2026-11-24T21:52:34.123Z INFO collab[paris/0]: round 3: ...".
//
// Lines go to stderr. Once a queue is open, they wait in it instead. The torch module opens it, and one Python thread
// takes records and hands them to Python's logging. No caller waits for that thread: lines that do not fit in the queue
// are counted, and the count is logged once there is room. A forked child has no queue, and writes to stderr.
//
// The logging library stays inside log.cpp: its fmt is another version than torch's.
// Threads: every function from any thread, but only one thread takes records. Messages below the level cost one relaxed
// load. The lock is held only for moments, never while a thread waits for the GIL.
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

// Set the level, and the site and rank that lines name. Defaults: level info, and no name.
void set_log_level(LogLevel level);
void set_log_source(std::string_view site, std::optional<std::uint32_t> rank);
// Set level and site for a session or a helper. While a queue is open, the level stays: it is the program's. If the
// site is set already, it keeps its rank; another site replaces it, without a rank.
void suggest_log(LogLevel level, std::string_view site);
[[nodiscard]] bool log_enabled(LogLevel level);

// Line breaks in the text become " | "; control characters for a terminal are escaped.
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

// From now on records wait in the queue. On SIGABRT the waiting records go to stderr, then the previous handler runs.
// Does nothing while a queue is open.
void open_log_queue(std::size_t capacity = kLogQueueCapacity);
[[nodiscard]] bool log_queue_open();
// Takes the oldest record. Nothing if none came within `limit`, or if the queue is closed: log_queue_open() tells
// which. The next call confirms that the previous record was delivered.
[[nodiscard]] std::optional<LogRecord> take_log_record(std::chrono::milliseconds limit);
// Waits until all queued records have been taken and delivered. False if that takes longer than `limit`.
bool flush_log(std::chrono::milliseconds limit);
// As flush_log; then the remaining records and all later lines go to stderr. Returns at once while no queue is open.
void close_log_queue(std::chrono::milliseconds limit);
// For the moment before the process ends: writes the queued records to stderr, then `text` as an error at any level.
// If the lock cannot be had (the caller may hold it), it writes only `text`, without the site.
void log_last_words(std::string_view text);

}  // namespace collab
