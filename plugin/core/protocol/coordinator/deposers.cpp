#include "core/protocol/coordinator/deposers.h"

#include "core/protocol/coordinator/faults.h"
#include "core/protocol/formatting.h"
#include "core/wire/limits.h"

namespace collab::protocol {

bool Deposers::may(AcceptorId voter, TimePoint now, Duration grace) {
  std::erase_if(counts_, [&](const auto& entry) { return now >= later(entry.second.since, grace); });
  Count& count = counts_.try_emplace(voter, Count{now, 0}).first->second;
  if (count.times >= kMaxRepeats) return false;
  ++count.times;
  return true;
}

void Deposers::disprove(AcceptorId voter) {
  if (disproved_.size() < wire::kMaxSites) disproved_.insert(voter);
}

}  // namespace collab::protocol
