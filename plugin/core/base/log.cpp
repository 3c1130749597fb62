#include "core/base/log.h"

#include <pthread.h>
#include <sched.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/text.h"

namespace collab {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames{"debug", "info", "warning", "error", "off"};

enum class Sink : std::uint8_t {
  kStderr,
  kQueue,
  kClosing,  // like kQueue, until the queue is empty or the time limit has passed
};

struct Waiting {
  LogRecord record;
  std::string line;  // formatted now, because a signal handler must not do it
};

struct Logger {
  Logger() : spd("collab", std::make_shared<spdlog::sinks::stderr_sink_st>()) {
    spd.set_level(spdlog::level::trace);  // the filter is ours, and runs before the text is touched
    spd.set_pattern("%v");
    spd.flush_on(spdlog::level::trace);
  }

  std::mutex mutex;  // guards the members below
  spdlog::logger spd;
  std::string site;
  std::optional<std::uint32_t> rank;

  Sink sink = Sink::kStderr;
  std::size_t capacity = 0;
  std::deque<Waiting> queue;
  std::optional<Waiting> in_hand;  // taken, and perhaps not yet written
  bool taker_waits = false;
  std::uint64_t left_out = 0;
  std::condition_variable came, taken;
};

std::atomic<LogLevel> level_now{LogLevel::kInfo};
std::atomic<Logger*> the_logger{nullptr};
struct sigaction abort_before {};

// A forked child has one thread. It has none of the threads that held the lock or take records. Its logger is a new
// one: the old one's condition variables count waiters that are gone.
void before_fork() { the_logger.load()->mutex.lock(); }
void parent_after_fork() { the_logger.load()->mutex.unlock(); }
void child_after_fork() {
  Logger* const parents = the_logger.load();
  auto* const own = new Logger;
  own->site = parents->site;
  own->rank = parents->rank;
  the_logger.store(own);
}

// Never destroyed: threads may still log while the process exits.
Logger& logger() {
  static const bool kMade = [] {
    the_logger.store(new Logger);
    pthread_atfork(before_fork, parent_after_fork, child_after_fork);
    return true;
  }();
  (void)kMade;
  return *the_logger.load();
}

// Much of the text comes from peers: names, addresses, reasons.
std::string on_one_line(std::string_view text) {
  std::string line;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    line += (begin > 0 ? " | " : "") + escaped(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return line;
}

std::string utc(std::chrono::system_clock::time_point time) {
  using namespace std::chrono;
  const auto whole = floor<milliseconds>(time);
  const auto day = floor<days>(whole);
  const year_month_day date(day);
  const hh_mm_ss clock(whole - day);
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text.data();
}

void print(Logger& to, const std::string& line) {
  to.spd.log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
}

Waiting waiting(LogRecord record) {
  std::string line = log_line(record);
  return {std::move(record), std::move(line)};
}

// A record that says how many lines the queue could not hold.
Waiting told_left_out(const Logger& of) {
  return waiting({LogLevel::kWarning, std::chrono::system_clock::now(), of.site, of.rank,
                  std::to_string(of.left_out) + " lines of the log were left out: more arrived at once than the " +
                      std::to_string(of.capacity) + " that can wait for Python's logging [log.overflow]"});
}

void print_what_waits(Logger& of) {
  if (of.in_hand) print(of, of.in_hand->line);
  of.in_hand.reset();
  for (const Waiting& one : of.queue) print(of, one.line);
  of.queue.clear();
  if (of.left_out > 0) print(of, told_left_out(of).line);
  of.left_out = 0;
}

bool wait_until_taken(Logger& of, std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit) {
  return of.taken.wait_for(lock, limit, [&of] { return of.queue.empty() && of.left_out == 0 && !of.in_hand; });
}

// For callers that must not wait: their own thread may hold it.
bool lock_soon(std::mutex& mutex) {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    if (mutex.try_lock()) return true;
    sched_yield();
  }
  return false;
}

void write_raw(const std::string& line) {
  for (const std::string_view part : {std::string_view(line), std::string_view("\n")}) {
    if (::write(STDERR_FILENO, part.data(), part.size()) < 0) return;
  }
}

// Runs in a signal handler: it waits for no lock, allocates nothing, and leaves the queue as it is. The record that
// Python is writing may come twice.
void on_abort(int signal) {
  Logger& of = *the_logger.load();
  if (lock_soon(of.mutex)) {
    if (of.in_hand) write_raw(of.in_hand->line);
    for (const Waiting& one : of.queue) write_raw(one.line);
    of.mutex.unlock();
  }
  sigaction(SIGABRT, &abort_before, nullptr);
  raise(signal);  // takes effect once this handler has returned
}

void watch_abort() {
  struct sigaction action {};
  action.sa_handler = on_abort;
  sigaction(SIGABRT, &action, &abort_before);
}

void unwatch_abort() {
  struct sigaction now {};
  sigaction(SIGABRT, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == on_abort) sigaction(SIGABRT, &abort_before, nullptr);
}

}  // namespace

Result<LogLevel> log_level_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return invalid_argument("log level: expected debug, info, warning, error or off, got \"" + std::string(name) +
                          "\" [knob.log-level]");
}

std::string_view name_of(LogLevel level) { return kLevelNames[static_cast<std::size_t>(level)]; }

void set_log_level(LogLevel level) { level_now.store(level, std::memory_order_relaxed); }

void set_log_source(std::string_view site, std::optional<std::uint32_t> rank) {
  Logger& to = logger();
  const std::lock_guard lock(to.mutex);
  to.site = site;
  to.rank = rank;
}

void suggest_log(LogLevel level, std::string_view site) {
  Logger& to = logger();
  const std::lock_guard lock(to.mutex);
  if (to.sink == Sink::kStderr) set_log_level(level);
  if (to.site == site) return;
  to.site = site;
  to.rank.reset();
}

bool log_enabled(LogLevel level) {
  return level != LogLevel::kOff && level >= level_now.load(std::memory_order_relaxed);
}

std::string log_line(const LogRecord& record) {
  std::string line = utc(record.time) + " ";
  for (const char c : name_of(record.level)) line += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  line += " collab";
  if (!record.site.empty() || record.rank) {
    line += "[" + record.site + (record.rank ? "/" + std::to_string(*record.rank) : std::string()) + "]";
  }
  return line + ": " + record.text;
}

void log_at(LogLevel level, std::string_view text) {
  if (!log_enabled(level)) return;
  Logger& to = logger();
  std::string shown = on_one_line(text);
  const std::lock_guard lock(to.mutex);
  // The time is read under the lock, so that lines are in its order.
  Waiting one = waiting({level, std::chrono::system_clock::now(), to.site, to.rank, std::move(shown)});
  if (to.sink == Sink::kStderr) return print(to, one.line);
  if (to.queue.size() >= to.capacity) {
    ++to.left_out;
    return;
  }
  to.queue.push_back(std::move(one));
  if (to.taker_waits) to.came.notify_one();
}

void log_debug(std::string_view text) { log_at(LogLevel::kDebug, text); }
void log_info(std::string_view text) { log_at(LogLevel::kInfo, text); }
void log_warning(std::string_view text) { log_at(LogLevel::kWarning, text); }
void log_error(std::string_view text) { log_at(LogLevel::kError, text); }

void open_log_queue(std::size_t capacity) {
  Logger& to = logger();
  const std::lock_guard lock(to.mutex);
  if (to.sink != Sink::kStderr) return;
  to.sink = Sink::kQueue;
  to.capacity = capacity;
  watch_abort();
}

bool log_queue_open() {
  Logger& of = logger();
  const std::lock_guard lock(of.mutex);
  return of.sink == Sink::kQueue;
}

std::optional<LogRecord> take_log_record(std::chrono::milliseconds limit) {
  Logger& from = logger();
  std::unique_lock lock(from.mutex);
  from.in_hand.reset();
  if (from.queue.empty() && from.left_out > 0) {
    from.queue.push_back(told_left_out(from));
    from.left_out = 0;
  }
  if (from.queue.empty()) {
    from.taker_waits = true;
    from.taken.notify_all();
    from.came.wait_for(lock, limit, [&from] { return !from.queue.empty() || from.sink != Sink::kQueue; });
    from.taker_waits = false;
  }
  if (from.queue.empty()) return std::nullopt;
  from.in_hand = std::move(from.queue.front());
  from.queue.pop_front();
  return from.in_hand->record;
}

bool flush_log(std::chrono::milliseconds limit) {
  Logger& of = logger();
  std::unique_lock lock(of.mutex);
  return of.sink == Sink::kStderr || wait_until_taken(of, lock, limit);
}

void close_log_queue(std::chrono::milliseconds limit) {
  Logger& of = logger();
  std::unique_lock lock(of.mutex);
  if (of.sink == Sink::kStderr) return;
  of.sink = Sink::kClosing;
  of.came.notify_all();
  wait_until_taken(of, lock, limit);
  print_what_waits(of);
  of.sink = Sink::kStderr;
  unwatch_abort();
}

void log_last_words(std::string_view text) {
  Logger& of = logger();
  LogRecord last{LogLevel::kError, std::chrono::system_clock::now(), "", std::nullopt, on_one_line(text)};
  if (lock_soon(of.mutex)) {
    const std::lock_guard lock(of.mutex, std::adopt_lock);
    print_what_waits(of);
    of.sink = Sink::kStderr;
    last.site = of.site;
    last.rank = of.rank;
  }
  write_raw(log_line(last));
}

}  // namespace collab
