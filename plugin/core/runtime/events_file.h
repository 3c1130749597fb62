// COLLAB_EVENTS_FILE: one JSON object a line, appended with a single write so that several processes can share a file.
//
// A thread writes, so a loop that reports an event waits for the disk only a moment. If the disk stalls, the waiting
// lines are bounded, and dropped lines are counted. Threads: one caller at a time; one writer thread. Ownership: the
// file, and the thread. If the disk hangs for ten seconds at destruction, both stay until the process ends.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "core/base/rate_limit.h"
#include "core/protocol/actions.h"
#include "core/runtime/storage/disk.h"

namespace collab {

using JsonFields = std::vector<std::pair<std::string, std::string>>;  // values are JSON texts

class EventsFile {
 public:
  // An empty path makes a file that swallows everything.
  static Result<EventsFile> open(const std::string& path, Disk& disk = system_disk());
  EventsFile(EventsFile&& other) noexcept = default;
  EventsFile& operator=(EventsFile&& other) = delete;
  ~EventsFile();  // waiting lines are written first

  static constexpr std::size_t kMostWaiting = std::size_t{1} << 20;  // bytes

  // {"t":<unix seconds>,"site":...,"event":...,<fields>}
  void write(std::string_view site, std::string_view event, const JsonFields& fields);

 private:
  struct Shared;
  explicit EventsFile(std::shared_ptr<Shared> shared);
  std::shared_ptr<Shared> shared_;  // null: swallows everything, or moved away
  std::thread thread_;
};

// Writes the protocol's notes to the log and, with their reasons, to the events file. Peers can cause notes, so their
// bytes are limited, for each kind of event and for all: a burst, then a rate per second. The next note of a kind gives
// the number of those kept back. Beyond kMostKinds, all other kinds share one limit.
class Notes {
 public:
  static constexpr std::size_t kMostKinds = 64;
  static constexpr double kOfKindAtOnce = 32 << 10, kOfKindASecond = 300;
  static constexpr double kAtOnce = 64 << 10, kASecond = 800;

  Notes(EventsFile& events, std::string site) : events_(events), site_(std::move(site)) {}
  void record(TimePoint now, const protocol::Note& note);
  [[nodiscard]] std::size_t kinds() const { return by_event_.size(); }  // kinds that are remembered

 private:
  [[nodiscard]] RateLimit& limit_of(const std::string& event);

  EventsFile& events_;
  std::string site_;
  std::map<std::string, RateLimit> by_event_;
  RateLimit all_{kAtOnce, kASecond};
};

}  // namespace collab
