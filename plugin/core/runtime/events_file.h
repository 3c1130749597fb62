// COLLAB_EVENTS_FILE: one JSON object a line, appended with a single write so that several processes can share a file.
//
// Threads: one caller at a time. Ownership: the file descriptor.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "core/base/rate_limited.h"
#include "core/protocol/actions.h"

namespace collab {

using JsonFields = std::vector<std::pair<std::string, std::string>>;  // values are JSON texts

class EventsFile {
 public:
  // An empty path makes a file that swallows everything.
  static Result<EventsFile> open(const std::string& path);
  EventsFile(EventsFile&& other) noexcept;
  EventsFile& operator=(EventsFile&& other) noexcept;
  EventsFile(const EventsFile&) = delete;
  EventsFile& operator=(const EventsFile&) = delete;
  ~EventsFile();

  // {"t":<unix seconds>,"site":...,"event":...,<fields>}
  void write(std::string_view site, std::string_view event, const JsonFields& fields);

 private:
  explicit EventsFile(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// A Note of the protocol goes to the log and, with its reason, to the events. Others can cause them, so their bytes are
// bounded, those of one kind of event and those of all: so many at once, then so many a second. The next of a kind that
// is told has the number of those kept back.
class Notes {
 public:
  static constexpr double kOfKindAtOnce = 32 << 10, kOfKindASecond = 300;
  static constexpr double kAtOnce = 64 << 10, kASecond = 800;

  Notes(EventsFile& events, std::string site) : events_(events), site_(std::move(site)) {}
  void record(TimePoint now, const protocol::Note& note);

 private:
  EventsFile& events_;
  std::string site_;
  std::map<std::string, Sparing> by_event_;
  Sparing all_{kAtOnce, kASecond};
};

[[nodiscard]] std::string json_strings(const std::vector<std::string>& values);

}  // namespace collab
