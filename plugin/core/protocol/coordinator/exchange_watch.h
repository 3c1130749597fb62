// Whether the exchange of an attempt stands still, and who holds it up.
//
//   moving --at most one site has moved anything for so long--> standing: judged by what the sites say they lack
//   moving --the limit of the round, and nobody is done-->        slow: judged alike, or given more time
//
// With each heartbeat a site says how much has come and left in the exchange under way, and whose parts it lacks. What
// leaves one site arrives at another, so a single site that says that something moves is not believed. Nor are several
// newcomers, which may be one peer: they are left out once no site with a say has told of progress for the limit, and
// for twice as long as the exchange had run by then. To blame is the site whose part most of the others lack:
// contributions first, as means wait for them. One site's word about another is never enough: either of the two may be
// wrong.
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
  // Nobody at all: no site in particular is to blame.
  struct Stall {
    std::set<SiteId> held_up_by{};                    // as several others say
    std::optional<std::pair<SiteId, SiteId>> pair{};  // the first says that it lacks the second's part
    std::set<SiteId> newcomers{};                     // say that they move, and nobody with a say does
  };

  // An exchange begins among these sites.
  void begin(const std::set<SiteId>& sites, TimePoint now);
  void heard(SiteId site, const wire::Exchanged& said, TimePoint now);
  // Who watches has slept for so long: what it has not heard meanwhile is nobody's silence.
  void slept(Duration time);
  // `open`: sites that have not said that they are done; `say`: that have a say in the round.
  [[nodiscard]] std::optional<Stall> stall(const std::set<SiteId>& open, const std::set<SiteId>& say, Duration limit,
                                           TimePoint now) const;

  // While all moves: whose contributions more than half of the other owners lack, unless that holds for half of all
  // sites or more. An only owner is believed: it could leave out whom it likes anyway.
  [[nodiscard]] std::set<SiteId> slow(const std::set<SiteId>& owners) const;
  // Whose means more than half of the other sites lack, and no contribution, likewise.
  [[nodiscard]] std::set<SiteId> keep_means_back() const;
  // Of these more than half have moved a tenth of all they have moved since this was asked last, or since the begin.
  bool gets_on(const std::set<SiteId>& open);

  // It has held one up: how often by now.
  std::uint32_t count_hold_up(const std::string& name);

 private:
  friend struct Inside;
  struct Site {
    wire::Exchanged said{};
    TimePoint moved_at{};
    std::uint64_t moved_before = 0;  // when it was asked whether the exchange gets on
  };
  [[nodiscard]] std::map<SiteId, std::set<SiteId>> who_lacks(bool means) const;  // by whose part it is

  TimePoint began_{};
  std::map<SiteId, Site> sites_;
  std::map<std::string, std::uint32_t> held_up_;  // by name, of at most kMostNames
};

}  // namespace collab::protocol
