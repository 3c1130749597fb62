// What committed rounds show about the contributors: how many samples each has trained, how much their deltas differ,
// and which sites seem to train on the same data. For reports only.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/protocol/coordinator/delta_statistics.h"
#include "core/protocol/coordinator/duplicate_data.h"
#include "core/protocol/coordinator/tally.h"

namespace collab::protocol {

struct CoordinatorParts;

class Contributions {
 public:
  struct Summary {
    std::vector<std::string> names;  // of the sites that contributed
    DeltaStatistics::Found deltas;
  };
  // Call while the participants still have their `Ready`. Warns if sites seem to train on the same data.
  Summary committed(const wire::StartAttempt& start);
  [[nodiscard]] const Tally& tally() const { return tally_; }  // of all runs that this coordinator has seen
  [[nodiscard]] const DeltaStatistics::Found& deltas() const { return deltas_.last(); }  // of the last round
  void forget();                                                                         // all but the tally

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  using SampledDeltas = std::map<SiteId, std::span<const std::uint32_t>>;
  // The sampled deltas of the sites that contributed and are still members.
  [[nodiscard]] SampledDeltas sampled_deltas(const wire::StartAttempt& start) const;
  void warn_of_duplicate_data(const wire::StartAttempt& start, const SampledDeltas& sampled);
  [[nodiscard]] DeltaStatistics::Found compare(const wire::StartAttempt& start, const SampledDeltas& sampled);
  [[nodiscard]] std::vector<std::string> count_samples(const wire::StartAttempt& start);

  CoordinatorParts* all_ = nullptr;
  Tally tally_;
  DuplicateData duplicate_data_;
  DeltaStatistics deltas_;
};

}  // namespace collab::protocol
