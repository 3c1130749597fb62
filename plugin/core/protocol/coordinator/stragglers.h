// Which sites a majority has waited for in vain, and for how long nobody waits for them now.
//
// The first rest is as long as the wait was, each further one in a row twice as long, up to sixteen times. It ends
// where the site takes part in an attempt. While it rests a round gives it three heartbeats (round_gate.h): a site that
// is late once is in the rounds after that if it is ready with the others; one that never comes costs the others less
// and less.
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
  // `waited`: for how long it was waited for. Of sites that are not `here` nothing is kept.
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
