// Which voters may have a leader step down: by a newer term, or by a later round that they say was agreed on.
//
// Each time costs the others an election and the attempt under way. So one voter does it kMaxRepeats times a grace, and
// one whose later round was disproved (election.h) does not by such a word again.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "collab/clock.h"
#include "core/wire/messages.h"

namespace collab::protocol {

class Deposers {
 public:
  // Counts: asked when it would.
  [[nodiscard]] bool may(AcceptorId voter, TimePoint now, Duration grace);
  void disprove(AcceptorId voter);
  [[nodiscard]] bool is_disproved(AcceptorId voter) const { return disproved_.contains(voter); }

 private:
  friend struct Inside;
  struct Count {
    TimePoint since{};
    std::uint32_t times = 0;
  };
  std::map<AcceptorId, Count> counts_;  // within the last grace
  std::set<AcceptorId> disproved_;
};

}  // namespace collab::protocol
