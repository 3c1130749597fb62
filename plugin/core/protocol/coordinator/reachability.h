// Which members report that they cannot exchange with each other, and which may therefore own slices of a round.
//
//   a pair: nothing known --it fails often enough in one round--> kept apart for some rounds --> nothing known
//
// An owner exchanges with all sites; two sites that own nothing need no link. So the owners are the sites that reach
// all. A site that cannot be dialled does not reach another such site. A pair of a site with itself means that the
// site's own part fails.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/types.h"

namespace collab::protocol {

class Reachability {
 public:
  enum class Address : std::uint8_t { kNone, kUnverified, kVerified };
  using Sites = std::map<SiteId, Address>;

  // Two sites could not exchange; their attempt was `after` old. True if they are kept apart from now on.
  bool failed(SiteId a, SiteId b, RoundId round, Duration after);
  void begin_round() { failures_.clear(); }
  void forget(SiteId site);
  void forget_pairs() { apart_.clear(); }

  [[nodiscard]] bool are_apart(SiteId a, SiteId b, RoundId round) const;
  [[nodiscard]] bool fails_itself(SiteId site, RoundId round) const { return are_apart(site, site, round); }
  [[nodiscard]] std::set<SiteId> owners(const Sites& sites, RoundId round) const;
  // If no site can own a slice: the sites to leave out so that one can. The site that is cut off from most comes first.
  [[nodiscard]] std::vector<SiteId> to_leave_out(Sites sites, RoundId round) const;

 private:
  friend struct Inside;
  using Pair = std::pair<SiteId, SiteId>;                                                        // the lower site first
  [[nodiscard]] std::map<SiteId, std::size_t> cut_off(const Sites& sites, RoundId round) const;  // from how many sites

  std::map<Pair, RoundId> apart_;           // the last round in which the pair is kept apart
  std::map<Pair, std::uint32_t> failures_;  // in this round
};

}  // namespace collab::protocol
