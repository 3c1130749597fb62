// Which site owns how much of the vector in the attempts of a round, and the report of that.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <vector>

#include "core/protocol/allocation/bandwidth_partition.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct CoordinatorParts;

class SliceOwners {
 public:
  // Divides the attempt's slices among the sites of `lines`. Owners that remain keep the slices they had `before`:
  // contributions that they hold need not be sent again.
  [[nodiscard]] std::vector<wire::Slice> divide(const wire::StartAttempt& start, const std::vector<Line>& lines,
                                                const std::vector<wire::Slice>& before);
  [[nodiscard]] double share_of(SiteId site) const { return partition_.share_of(site); }
  void forget() { partition_ = {}; }

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  void report_division(RoundId round, const std::vector<Share>& shares, double takes);

  CoordinatorParts* all_ = nullptr;
  BandwidthPartition partition_;
};

}  // namespace collab::protocol
