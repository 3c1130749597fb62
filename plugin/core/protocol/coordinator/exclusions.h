// Leaves sites out of the round, by the limits of faults.h, and reports it. Other parts find the cause: RoundGate (the
// grace is over), Round (the exchange stalls, exceeds its limit, or cannot reach a site; digests differ).
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <string>

#include "core/protocol/coordinator/faults.h"

namespace collab::protocol {

struct CoordinatorParts;

class Exclusions {
 public:
  [[nodiscard]] bool is_excluded(SiteId site) const;  // left out of this round

  void begin_round();
  void set_aside(SiteId site) { faults_.set_aside(site); }
  void exclude(SiteId site, const std::string& why);                       // like set_aside(), and reports it
  void report_exclusion(const std::string& name, const std::string& why);  // the round goes on without it

  // Counts that the member made the attempt in flight fail, in a way that no other rule limits.
  void count_failure_of(SiteId site);
  void lost(const Member& gone);  // a participant of that attempt
  // `failed`: the newcomers that made the attempt in flight fail, with their names.
  void exclude_newcomers(const std::map<SiteId, std::string>& failed);
  void expel_or_exclude(SiteId id, const std::string& why, const std::string& code);

  // Return how often the site was repaired: in this round; since its mean was last right.
  std::uint32_t count_state_repair(SiteId site) { return faults_.count_state_repair(site); }
  std::uint32_t count_mean_repair(SiteId site) { return faults_.count_mean_repair(site); }
  void had_right_mean(SiteId site) { faults_.had_right_mean(site); }
  void forget() { faults_ = {}; }

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  [[nodiscard]] bool is_needed(SiteId site) const;

  CoordinatorParts* all_ = nullptr;
  Faults faults_;
};

}  // namespace collab::protocol
