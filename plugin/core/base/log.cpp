#include "core/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/text.h"

namespace collab {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames{"debug", "info", "warning", "error", "off"};

struct Logger {
  Logger() : spd("collab", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    spd.set_level(spdlog::level::trace);  // we filter ourselves, before the text is touched
    spd.set_pattern("%v");
    spd.flush_on(spdlog::level::trace);
  }

  std::atomic<LogLevel> level{LogLevel::kInfo};
  spdlog::logger spd;
  std::mutex mutex;  // guards opening
  std::string opening = "collab";
};

// Never destroyed: threads may still log while the process exits.
Logger& logger() {
  static Logger* const kLogger = new Logger;
  return *kLogger;
}

// Much of it comes from peers: names, addresses, reasons.
std::string on_one_line(std::string_view text) {
  std::string line;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    line += (begin > 0 ? " | " : "") + escaped(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return line;
}

void write(LogLevel level, std::string_view word, std::string_view text) {
  if (!log_enabled(level)) return;
  std::string line;
  {
    const std::lock_guard lock(logger().mutex);
    line = logger().opening;
  }
  line += ": ";
  line += word;
  line += on_one_line(text);
  logger().spd.log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

Result<LogLevel> log_level_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return invalid_argument("log level: expected debug, info, warning, error or off, got \"" + std::string(name) + "\"");
}

void set_log(LogLevel level, std::string_view prefix) {
  logger().level.store(level, std::memory_order_relaxed);
  const std::lock_guard lock(logger().mutex);
  logger().opening = prefix.empty() ? std::string("collab") : "collab[" + std::string(prefix) + "]";
}

bool log_enabled(LogLevel level) {
  return level != LogLevel::kOff && level >= logger().level.load(std::memory_order_relaxed);
}

void log_debug(std::string_view text) { write(LogLevel::kDebug, "", text); }
void log_info(std::string_view text) { write(LogLevel::kInfo, "", text); }
void log_warning(std::string_view text) { write(LogLevel::kWarning, "warning: ", text); }
void log_error(std::string_view text) { write(LogLevel::kError, "error: ", text); }

}  // namespace collab
