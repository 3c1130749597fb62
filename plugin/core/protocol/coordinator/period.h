// With COLLAB_SYNC_EVERY=auto or samples:N, how many steps all sites train until the next round. Each site says with
// its Ready what it has measured; the leader decides, and its Commit says so to all.
//
// A site may stand in a round for longer than the round takes, because it waited for others to be ready. The leader
// knows how long it waited, and subtracts that.
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

// What the shared settings say of it.
[[nodiscard]] PeriodRule period_rule_of(const std::vector<wire::Setting>& settings);

class Period {
 public:
  // Until the next round; 0: the setting's, or not known to this leader yet.
  [[nodiscard]] std::uint32_t in_force() const { return choice_.in_force(); }

  void ready(SiteId site);                     // the first time in this round
  void started(const std::set<SiteId>& with);  // an attempt
  void skipped();                              // those who were ready train on
  // From this commit on.
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
  // `why`, in words, and as fields of the event.
  void report_change(RoundId round, std::uint32_t before, const std::set<SiteId>& sites, const std::string& why,
                     std::vector<std::pair<std::string, std::string>> fields);

  CoordinatorParts* all_ = nullptr;
  PeriodChoice choice_;
  std::map<SiteId, TimePoint> ready_at_;  // of this round
  std::map<SiteId, Duration> waits_;      // of this round: for others to be ready
  std::map<SiteId, Duration> waited_;     // of the one before, which the sites measure now
};

}  // namespace collab::protocol
