// How many steps all sites train until the next round, with COLLAB_SYNC_EVERY=auto or samples:N. Each site reports its
// measurements with Ready. The leader decides, and announces the period with Commit.
//
// A site may spend longer in a round than the round takes, because it waited for others to be ready. The leader knows
// how long each site waited, and subtracts that.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "core/protocol/coordinator/period_choice.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct CoordinatorParts;
struct Member;

// The rule that the shared settings give.
[[nodiscard]] PeriodRule period_rule_of(const std::vector<wire::Setting>& settings);

class Period {
 public:
  // Steps until the next round. 0 if the setting fixes them, or if this leader does not know them yet.
  [[nodiscard]] std::uint32_t in_force() const { return choice_.in_force(); }

  void ready(SiteId site);                     // only the first call in a round counts
  void started(const std::set<SiteId>& with);  // an attempt was formed
  void skipped();                              // the ready sites train on
  // The period from this commit on.
  [[nodiscard]] std::uint32_t committed(const wire::StartAttempt& start);
  void forget() { *this = Period(all_); }

  explicit Period(CoordinatorParts* all = nullptr) : all_(all) {}

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  [[nodiscard]] PeriodRule rule() const;
  [[nodiscard]] Pace slowest_of(const std::set<SiteId>& sites) const;
  [[nodiscard]] double samples_a_step(const std::set<SiteId>& sites) const;
  void by_samples(RoundId round, const PeriodRule& rule, const std::set<SiteId>& sites);
  void by_time(RoundId round, const PeriodRule& rule, const std::set<SiteId>& sites);
  // `why`: the reason in words; `fields`: the same for the event.
  void report_change(RoundId round, std::uint32_t before, const std::set<SiteId>& sites, const std::string& why,
                     std::vector<std::pair<std::string, std::string>> fields);

  CoordinatorParts* all_ = nullptr;
  PeriodChoice choice_;
  std::map<SiteId, TimePoint> ready_at_;  // in this round
  std::map<SiteId, Duration> waits_;      // in this round: for others to be ready
  std::map<SiteId, Duration> waited_;     // in the previous round, which the sites report now
};

}  // namespace collab::protocol
