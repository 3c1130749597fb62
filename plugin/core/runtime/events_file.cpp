#include "core/runtime/events_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "core/base/log.h"
#include "core/base/message_code.h"
#include "core/base/text.h"
#include "core/runtime/storage/disk.h"

namespace collab {

Result<EventsFile> EventsFile::open(const std::string& path) {
  if (path.empty()) return EventsFile(-1);
  const int fd = open_plain(system_disk(), path.c_str(), O_WRONLY | O_CREAT | O_APPEND);
  if (fd < 0) {
    return invalid_argument(
        "COLLAB_EVENTS_FILE: cannot append to " + path + ": " + std::strerror(errno) +
        "; expected a plain file, or a name in a folder this process may write to [knob.events-file]");
  }
  // It was there before, and who made it may want it so: its mode is not changed.
  struct stat now {};
  if (::fstat(fd, &now) == 0 && (now.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%03o", static_cast<unsigned>(now.st_mode & 0777));
    log_warning("COLLAB_EVENTS_FILE: " + path +
                " was there before, and others on this machine can read or change it (mode " + mode + "): chmod 600 " +
                path + ", unless that is meant [state.events-readable]");
  }
  return EventsFile(fd);
}

EventsFile::EventsFile(EventsFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

EventsFile& EventsFile::operator=(EventsFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

EventsFile::~EventsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void EventsFile::write(std::string_view site, std::string_view event, const JsonFields& fields) {
  if (fd_ < 0) return;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string line = "{\"t\":" + json_number(now) + ",\"site\":" + json_quote(site) + ",\"event\":" + json_quote(event);
  for (const auto& [key, value] : fields) line += "," + json_quote(key) + ":" + value;
  line += "}\n";
  if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    log_warning(std::string("COLLAB_EVENTS_FILE: a line could not be written: ") + std::strerror(errno) +
                " [state.events-lost]");
  }
}

void Notes::record(TimePoint now, const protocol::Note& note) {
  using Level = protocol::Note::Level;
  constexpr double kBeside = 120;  // of a line, beside its text
  const double cost = 2 * (static_cast<double>(note.text.size()) + kBeside);
  Sparing& of_kind = by_event_.try_emplace(note.event, kOfKindAtOnce, kOfKindASecond).first->second;
  if (!of_kind.has(now, cost) || !all_.has(now, cost)) return of_kind.keep_back();
  const std::uint64_t kept_back = of_kind.take(cost);
  all_.take(cost);
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

std::string json_strings(const std::vector<std::string>& values) {
  std::string text = "[";
  for (const std::string& value : values) {
    if (text.size() > 1) text += ",";
    text += json_quote(value);
  }
  return text + "]";
}

}  // namespace collab
