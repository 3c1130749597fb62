// Which sites made attempts at a round fail, and which sites are left out because of that.
//
// Every participant can make an attempt fail: it leaves, fails, or computes another mean. So, until the round ends:
//
//   a member gives up more than its line or memory explains       it is left out
//   a newcomer leaves or has another mean, or all newcomers       of the newcomers, only the trainer that came first
//   together fail often or for long                               takes part
//   then that trainer fails too                                   no newcomer takes part
//
// Anyone can invent names, but becoming a voter takes a committed round. A peer can keep others from their first round
// with names that fail, but only if it came before them, with a name for each round.
//
// An attempt that fails for lack of a link counts against the pair of sites (reachability.h). That count expires.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "collab/clock.h"
#include "core/protocol/coordinator/member.h"

namespace collab::protocol {

// How often one kind of fault of one member is answered with another try. The kinds, and how long each is counted:
//
//   it has another anchor than the others            a round
//   it has another mean than the others              until its mean was right
//   it makes the leader step down                    a COLLAB_LINK_GRACE
//   an exchange stands still because of it           for good, by its name; one try fewer than the others
inline constexpr std::uint32_t kMaxRepeats = 3;
// How often the time limit of an exchange that makes progress is extended.
inline constexpr std::uint32_t kMaxExtensions = 2;
// How many attempts of a round one member, or all newcomers together, may make fail otherwise.
inline constexpr std::uint32_t kMaxFailures = 8;

class Faults {
 public:
  void begin_round(const Members& members);
  void set_aside(SiteId site) { set_aside_.insert(site); }
  // Returns true if that was once too often: the member is left out from now on.
  bool count_failure(SiteId site);
  // A newcomer made an attempt fail after the time `after`. True if newcomers failed too often, or cost `most` time.
  [[nodiscard]] bool newcomer_failed(Duration after, Duration most);
  [[nodiscard]] Duration newcomers_cost() const { return newcomers_cost_; }
  // Leaves all newcomers but `first` out of this round, and out of others until `until`. If the kept one is in
  // `because`, it is left out too. Returns whether that changes anything.
  bool exclude_newcomers(const std::set<SiteId>& because, std::optional<SiteId> first, TimePoint until);
  [[nodiscard]] bool is_excluded(SiteId site, bool is_voter, TimePoint now) const {
    const bool out = !is_voter && (newcomer_exclusions_ > 0 || now < newcomers_from_);
    return set_aside_.contains(site) || (out && site != first_newcomer_);
  }

  // Return how often the site was repaired: in this round; since its mean was last right.
  std::uint32_t count_state_repair(SiteId site) { return ++state_repairs_[site]; }
  std::uint32_t count_mean_repair(SiteId site) { return ++mean_repairs_[site]; }
  void had_right_mean(SiteId site) { mean_repairs_.erase(site); }

 private:
  friend struct Inside;
  std::set<SiteId> set_aside_;  // the round goes on without them
  std::map<SiteId, std::uint32_t> failure_counts_, state_repairs_, mean_repairs_;
  std::uint32_t newcomers_failed_ = 0;
  Duration newcomers_cost_{};
  std::uint32_t newcomer_exclusions_ = 0;  // in this round
  std::optional<SiteId> first_newcomer_;
  TimePoint newcomers_from_{};
};

}  // namespace collab::protocol
