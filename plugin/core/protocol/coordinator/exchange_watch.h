// Detects that the exchange of an attempt makes no progress any more, and which sites hold it up.
//
//   moving --at most one site has moved within the limit------> standing: judged by what the sites say they lack
//   moving --the limit of the round, and no site is done-->       slow: judged likewise, or given more time
//
// With each heartbeat a site reports how much it has received and sent in the exchange, and whose parts it lacks. All
// that leaves one site arrives at another. So a single site that reports movement is not believed. Several newcomers
// are not believed either, because they may be one peer. They are left out once no voter has reported progress for the
// limit, and for twice the time from the start to the last such report. The site to blame is the one whose part most
// others lack: contributions count first, as means wait for them. One site's report about another is never enough,
// because either of the two may be wrong.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/wire/messages.h"

namespace collab::protocol {

class ExchangeWatch {
 public:
  // If all are empty, no particular site is to blame.
  struct Stall {
    std::set<SiteId> held_up_by{};                    // several others lack their parts
    std::optional<std::pair<SiteId, SiteId>> pair{};  // the first says that it lacks the second's part
    std::set<SiteId> newcomers{};                     // they report movement, while no voter does
  };

  // An exchange begins among these sites.
  void begin(const std::set<SiteId>& sites, TimePoint now);
  void heard(SiteId site, const wire::Exchanged& said, TimePoint now);
  // This process has slept for `time`. Silence in that time counts against no site.
  void slept(Duration time);
  // `open`: sites that have not sent Done; `voters`: the round's voters.
  [[nodiscard]] std::optional<Stall> stall(const std::set<SiteId>& open, const std::set<SiteId>& voters, Duration limit,
                                           TimePoint now) const;

  // If the exchange still moves: the sites whose contributions more than half of the other owners lack. Empty if these
  // are at least half of all sites. A single owner is believed: it could leave out any site anyway.
  [[nodiscard]] std::set<SiteId> slow(const std::set<SiteId>& owners) const;
  // Likewise, the sites whose means more than half of the other sites lack. Sites that lack contributions do not count.
  [[nodiscard]] std::set<SiteId> sites_withholding_means() const;
  // True if more than half of these sites moved over a tenth of their total since the last call, or since begin().
  bool is_progressing(const std::set<SiteId>& open);

  // Counts that the site has held up an exchange. Returns how often it has by now.
  std::uint32_t count_stall(const std::string& name);

 private:
  friend struct Inside;
  struct Site {
    wire::Exchanged said{};
    TimePoint moved_at{};
    std::uint64_t moved_before = 0;  // at the last call of is_progressing()
  };
  [[nodiscard]] std::map<SiteId, std::set<SiteId>> missing_parts(bool means) const;  // by the site whose part it is

  TimePoint began_{};
  std::map<SiteId, Site> sites_;
  std::map<std::string, std::uint32_t> held_up_;  // by name; at most kMostNames
};

}  // namespace collab::protocol
