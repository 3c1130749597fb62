// Writes a coordinator's notes to the log and its events file, and keeps the latest for people who view the swarm.
//
// Threads: one caller at a time. Ownership: the events file and the latest notes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/swarm_status.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/runtime/events_file.h"
#include "core/runtime/recent_events.h"

namespace collab {

class CoordinatorReporter {
 public:
  explicit CoordinatorReporter(EventsFile events) : events_(std::move(events)) {}
  CoordinatorReporter(const CoordinatorReporter&) = delete;
  CoordinatorReporter& operator=(const CoordinatorReporter&) = delete;

  void listens(const std::string& address) {
    events_.write(kSite, "coordinator", {{"address", json_quote(address)}, {"term", "1"}});
  }
  void record(TimePoint now, const protocol::Note& note) {
    const bool round = note.event == "round";
    if (note.level != protocol::Note::Level::kDebug) (round ? rounds_ : notable_).add(note);
    if (round) return log_debug(note.text);  // each member logs it, with its own times
    notes_.record(now, note);
  }

  [[nodiscard]] std::vector<RecentEvent> rounds() const { return rounds_.last(); }
  [[nodiscard]] std::vector<RecentEvent> notable() const { return notable_.last(); }

 private:
  static constexpr std::string_view kSite = "coordinator";  // the site name in its events

  EventsFile events_;
  Notes notes_{events_, std::string(kSite)};
  RecentEvents rounds_, notable_;
};

}  // namespace collab
