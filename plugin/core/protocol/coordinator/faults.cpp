#include "core/protocol/coordinator/faults.h"

#include <algorithm>
#include <utility>

#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {
constexpr std::size_t kMostLate = 1024;
constexpr std::uint32_t kMostDoublings = 6;
}  // namespace

void Faults::begin_round(const Members& members) {
  // Who was beyond repair and is left out has not shown a right mean since.
  std::erase_if(mean_repairs_,
                [&](const auto& entry) { return !members.contains(entry.first) && !set_aside_.contains(entry.first); });
  set_aside_.clear();
  gave_up_.clear();
  state_repairs_.clear();
  newcomers_failed_ = 0;
  newcomers_out_ = 0;
}

void Faults::was_late(SiteId site, const std::string& name, Duration took, TimePoint now) {
  std::erase_if(rests_until_, [&](const auto& entry) { return now >= entry.second; });
  if (late_.size() >= kMostLate && !late_.contains(name)) late_.clear();
  const std::uint32_t times = std::min(late_[name]++, kMostDoublings);
  rests_until_[site] = later(now, took * (1U << times));
}

bool Faults::gave_up(SiteId site) { return ++gave_up_[site] > kMaxFailures && set_aside_.insert(site).second; }

bool Faults::leave_newcomers_out(std::optional<SiteId> first, TimePoint until) {
  newcomers_from_ = std::max(newcomers_from_, until);
  first_newcomer_ = newcomers_out_ == 0 ? first : std::nullopt;
  return ++newcomers_out_ <= 2;
}

}  // namespace collab::protocol
