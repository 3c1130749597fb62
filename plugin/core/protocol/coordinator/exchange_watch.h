// Whether the exchange of an attempt makes no progress any more, and which sites hold it up.
//
//   moving --at most one site has moved anything for so long--> standing: judged by what the sites say they lack
//   moving --the limit of the round, and no site is done-->       slow: judged alike, or given more time
//
// With each heartbeat a site says how much has come and left in the exchange under way, and whose parts it lacks. What
// leaves one site arrives at another. So a single site that reports movement is not believed. Several newcomers are not
// believed either, because they may be one peer. They are left out once no voter has reported progress for
// the limit, and for twice as long as the exchange had run by then. The site to blame is the one whose part most others
// lack: contributions come first, as means wait for them. One site's report about another is never enough, because
// either of the two may be wrong.
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
    std::set<SiteId> held_up_by{};                    // as several others say
    std::optional<std::pair<SiteId, SiteId>> pair{};  // the first says that it lacks the second's part
    std::set<SiteId> newcomers{};                     // report movement, while no voter does
  };

  // An exchange begins among these sites.
  void begin(const std::set<SiteId>& sites, TimePoint now);
  void heard(SiteId site, const wire::Exchanged& said, TimePoint now);
  // This process has slept for so long. Silence in that time counts against no site.
  void slept(Duration time);
  // `open`: sites that have not said that they are done; `voters`: of the round.
  [[nodiscard]] std::optional<Stall> stall(const std::set<SiteId>& open, const std::set<SiteId>& voters, Duration limit,
                                           TimePoint now) const;

  // While all moves: the sites whose contributions more than half of the other owners lack, unless these are half of
  // all sites or more. A single owner is believed: it could leave out any site anyway.
  [[nodiscard]] std::set<SiteId> slow(const std::set<SiteId>& owners) const;
  // Likewise the sites whose means, but no contributions, more than half of the other sites lack.
  [[nodiscard]] std::set<SiteId> sites_withholding_means() const;
  // True if more than half of these sites moved a tenth of all they have moved since the last call, or since the begin.
  bool is_progressing(const std::set<SiteId>& open);

  // The site has held up an exchange. Returns how often by now.
  std::uint32_t count_stall(const std::string& name);

 private:
  friend struct Inside;
  struct Site {
    wire::Exchanged said{};
    TimePoint moved_at{};
    std::uint64_t moved_before = 0;  // when it was asked whether the exchange gets on
  };
  [[nodiscard]] std::map<SiteId, std::set<SiteId>> missing_parts(bool means) const;  // by whose part it is

  TimePoint began_{};
  std::map<SiteId, Site> sites_;
  std::map<std::string, std::uint32_t> held_up_;  // by name, of at most kMostNames
};

}  // namespace collab::protocol
