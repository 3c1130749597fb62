#include "core/runtime/events_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>

#include "core/base/log.h"
#include "core/base/message_code.h"
#include "core/base/text.h"

namespace collab {
namespace {

constexpr auto kDiskLimit = std::chrono::seconds(10);
constexpr auto kMoment = std::chrono::milliseconds(50);

}  // namespace

// Outlives the events file if its thread hangs in a call of the disk.
struct EventsFile::Shared {
  Shared(Disk& with, int file) : disk(with), fd(file) {}
  ~Shared() { ::close(fd); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  void append(std::string line);
  [[nodiscard]] bool end(std::chrono::milliseconds limit);  // true: all waiting lines were written
  void run();
  void write_out(const std::string& line);

  Disk& disk;
  const int fd;
  bool torn = false;  // used by the thread only: the file ends in half a line

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::string> lines;
  std::size_t waiting = 0;     // bytes of the waiting lines and the one being written
  std::uint64_t left_out = 0;  // lines dropped since the last report
  bool slow = false;           // the disk made a caller wait in vain, and has not caught up yet
  bool ending = false;
  bool ended = false;
};

void EventsFile::Shared::append(std::string line) {
  std::unique_lock lock(mutex);
  if (waiting + line.size() > kMostWaiting) {
    ++left_out;
    return;
  }
  waiting += line.size();
  lines.push_back(std::move(line));
  changed.notify_all();
  if (!slow) slow = !changed.wait_for(lock, kMoment, [this] { return waiting == 0; });
}

bool EventsFile::Shared::end(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex);
  ending = true;
  changed.notify_all();
  return changed.wait_for(lock, limit, [this] { return ended; });
}

void EventsFile::Shared::run() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return ending || !lines.empty(); });
    if (lines.empty()) break;
    const std::string line = std::move(lines.front());
    lines.pop_front();
    lock.unlock();
    write_out(line);
    lock.lock();
    waiting -= line.size();
    slow = slow && waiting > 0;
    if (const std::uint64_t lost = std::exchange(left_out, 0); lost > 0) {
      log_warning("COLLAB_EVENTS_FILE: the disk was too slow, and " + std::to_string(lost) +
                  " lines were left out [state.events-lost]");
    }
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

// The line after a torn one begins on a new line, so a reader of the file loses only one.
void EventsFile::Shared::write_out(const std::string& line) {
  const std::string text = (torn ? "\n" : "") + line;
  const ssize_t written = disk.write(fd, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) {
    torn = false;
    return;
  }
  const std::string why = written < 0 ? std::strerror(errno) : "the disk accepted only part of it (is it full?)";
  torn = torn || written > 0;
  log_warning("COLLAB_EVENTS_FILE: a line could not be written: " + why + " [state.events-lost]");
}

Result<EventsFile> EventsFile::open(const std::string& path, Disk& disk) {
  if (path.empty()) return EventsFile(nullptr);
  const int fd = open_plain(disk, path.c_str(), O_WRONLY | O_CREAT | O_APPEND);
  if (fd < 0) {
    return invalid_argument(
        "COLLAB_EVENTS_FILE: cannot append to " + path + ": " + std::strerror(errno) +
        "; expected a plain file, or a name in a folder this process may write to [knob.events-file]");
  }
  // The file may have existed before, and its owner may want its mode as it is. So the mode is not changed.
  struct stat now {};
  if (::fstat(fd, &now) == 0 && (now.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%03o", static_cast<unsigned>(now.st_mode & 0777));
    log_warning("COLLAB_EVENTS_FILE: " + path +
                " existed before, and others on this machine can read or change it (mode " + mode + "): chmod 600 " +
                path + ", unless you want that [state.events-readable]");
  }
  return EventsFile(std::make_shared<Shared>(disk, fd));
}

EventsFile::EventsFile(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {
  if (shared_ != nullptr) thread_ = std::thread([writer = shared_] { writer->run(); });
}

EventsFile::~EventsFile() {
  if (shared_ == nullptr) return;
  if (shared_->end(kDiskLimit)) {
    thread_.join();
  } else {
    log_warning(
        "COLLAB_EVENTS_FILE: the disk has accepted no line for ten seconds: the last ones may be lost "
        "[state.events-lost]");
    thread_.detach();
  }
}

void EventsFile::write(std::string_view site, std::string_view event, const JsonFields& fields) {
  if (shared_ == nullptr) return;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string line = "{\"t\":" + json_number(now) + ",\"site\":" + json_quote(site) + ",\"event\":" + json_quote(event);
  for (const auto& [key, value] : fields) line += "," + json_quote(key) + ":" + value;
  line += "}\n";
  shared_->append(std::move(line));
}

RateLimit& Notes::limit_of(const std::string& event) {
  const bool fits = by_event_.size() < kMostKinds - 1 || by_event_.contains(event);
  return by_event_.try_emplace(fits ? event : "other", kOfKindAtOnce, kOfKindASecond).first->second;
}

void Notes::record(TimePoint now, const protocol::Note& note) {
  using Level = protocol::Note::Level;
  constexpr double kBeside = 120;  // bytes of a line apart from its text
  const double cost = 2 * (static_cast<double>(note.text.size()) + kBeside);
  RateLimit& of_kind = limit_of(note.event);
  if (!of_kind.would_allow(now, cost) || !all_.would_allow(now, cost)) return of_kind.keep_back();
  const std::uint64_t kept_back = of_kind.spend(cost);
  all_.spend(cost);
  std::string text = note.text;
  if (kept_back > 0) text += " (and " + std::to_string(kept_back) + " others of this kind since the last such line)";
  switch (note.level) {
    case Level::kDebug: log_debug(text); break;
    case Level::kInfo: log_info(text); break;
    case Level::kWarning: log_warning(text); break;
    case Level::kError: log_error(text); break;
  }
  if (note.event.empty()) return;
  JsonFields fields = note.fields;
  if (kept_back > 0) fields.emplace_back("kept_back", std::to_string(kept_back));
  const bool has_reason = std::ranges::any_of(fields, [](const auto& field) { return field.first == "reason"; });
  if (!has_reason) fields.emplace_back("reason", json_quote(text));
  if (const std::string_view code = message_code(text); !code.empty()) fields.emplace_back("code", json_quote(code));
  events_.write(site_, note.event, fields);
}

}  // namespace collab
