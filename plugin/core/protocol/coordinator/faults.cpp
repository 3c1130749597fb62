#include "core/protocol/coordinator/faults.h"

#include <algorithm>
#include <utility>

namespace collab::protocol {

void Faults::begin_round(const Members& members) {
  // The count stays for a site that was left out as beyond repair: it has not shown a right mean since.
  std::erase_if(mean_repairs_,
                [&](const auto& entry) { return !members.contains(entry.first) && !set_aside_.contains(entry.first); });
  set_aside_.clear();
  failure_counts_.clear();
  state_repairs_.clear();
  newcomers_failed_ = 0;
  newcomers_cost_ = {};
  newcomer_exclusions_ = 0;
}

bool Faults::count_failure(SiteId site) {
  return ++failure_counts_[site] > kMaxFailures && set_aside_.insert(site).second;
}

// However long an attempt took, it counts for only a part of the limit. So two sites whose line breaks twice are first
// kept apart.
bool Faults::newcomer_failed(Duration after, Duration most) {
  newcomers_cost_ += std::min(after, most / kMaxRepeats);
  return ++newcomers_failed_ > kMaxFailures || newcomers_cost_ >= most;
}

bool Faults::exclude_newcomers(const std::set<SiteId>& because, std::optional<SiteId> first, TimePoint until) {
  newcomers_from_ = std::max(newcomers_from_, until);
  const bool kept_one_failed = first_newcomer_ && because.contains(*first_newcomer_);
  if (newcomer_exclusions_ > 0 && !kept_one_failed) return false;  // they are out already
  first_newcomer_ = newcomer_exclusions_ == 0 ? first : std::nullopt;
  ++newcomer_exclusions_;
  return true;
}

}  // namespace collab::protocol
