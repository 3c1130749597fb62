#include "core/protocol/coordinator/faults.h"

#include <algorithm>
#include <utility>

namespace collab::protocol {

void Faults::begin_round(const Members& members) {
  // Who was beyond repair and is left out has not shown a right mean since.
  std::erase_if(mean_repairs_,
                [&](const auto& entry) { return !members.contains(entry.first) && !set_aside_.contains(entry.first); });
  set_aside_.clear();
  gave_up_.clear();
  state_repairs_.clear();
  newcomers_failed_ = 0;
  newcomers_out_ = false;
}

bool Faults::gave_up(SiteId site) { return ++gave_up_[site] > kMaxFailures && set_aside_.insert(site).second; }

bool Faults::leave_newcomers_out(TimePoint until) {
  newcomers_from_ = std::max(newcomers_from_, until);
  return !std::exchange(newcomers_out_, true);
}

}  // namespace collab::protocol
