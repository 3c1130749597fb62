// Sites that did not come while a majority waited for them. Each of them rests: for some time rounds do not wait for
// it.
//
// The first rest is as long as the wait was. Each further rest in a row is twice as long, up to sixteen times. A rest
// ends when the site takes part in an attempt. While a site rests, a round gives it three heartbeats (round_gate.h). So
// a site that was late once is in the next rounds if it is ready with the others, and a site that never comes costs the
// others less and less.
//
// Pure. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {

class Stragglers {
 public:
  // `waited`: how long the others waited for it. Nothing is kept about sites that are not `here`.
  void missed(SiteId site, TimePoint now, Duration waited, const std::set<SiteId>& here) {
    std::erase_if(late_, [&](const auto& entry) { return !here.contains(entry.first); });
    Late& late = late_[site];
    late.until = later(now, waited * (1U << late.rests));
    late.rests = std::min(late.rests + 1, kMostDoublings);
  }
  void takes_part(SiteId site) { late_.erase(site); }
  void forget() { late_.clear(); }
  [[nodiscard]] bool rests(SiteId site, TimePoint now) const {
    const auto late = late_.find(site);
    return late != late_.end() && now < late->second.until;
  }

 private:
  friend struct Inside;
  static constexpr unsigned kMostDoublings = 4;
  struct Late {
    unsigned rests = 0;  // so far
    TimePoint until{};
  };
  std::map<SiteId, Late> late_;
};

}  // namespace collab::protocol
