// Writes the notes and rounds of a site's node to the log and the events file.
//
// Threads: the node's loop. Ownership: the events file; borrows the configuration.
#pragma once

#include <string>
#include <utility>

#include "collab/config.h"
#include "core/protocol/fragments.h"
#include "core/runtime/egress_watch.h"
#include "core/runtime/events_file.h"
#include "core/runtime/round_in_progress.h"

namespace collab {

class SiteReporter {
 public:
  SiteReporter(const Config& config, std::string site, std::string transport, protocol::Fragments fragments,
               EventsFile events)
      : config_(config),
        site_(std::move(site)),
        transport_(std::move(transport)),
        fragments_(fragments),
        events_(std::move(events)) {}
  SiteReporter(const SiteReporter&) = delete;
  SiteReporter& operator=(const SiteReporter&) = delete;

  void record(TimePoint now, const protocol::Note& note) { notes_.record(now, note); }
  void round(const RoundReport& report, const EgressWatch& egress);

 private:
  const Config& config_;
  const std::string site_;
  const std::string transport_;  // the transport's name
  const protocol::Fragments fragments_;
  EventsFile events_;
  Notes notes_{events_, site_};
};

}  // namespace collab
