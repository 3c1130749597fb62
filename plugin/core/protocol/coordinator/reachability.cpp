#include "core/protocol/coordinator/reachability.h"

#include <algorithm>

namespace collab::protocol {
namespace {

constexpr std::uint32_t kApartAfter = 4;
// A failure this soon after the attempt's start counts half. A link that one side gives up fails once more if the other
// side does not know yet.
constexpr Duration kEarlyFailure = std::chrono::seconds(3);
constexpr std::uint64_t kRoundsApart = 8;

}  // namespace

bool Reachability::failed(SiteId a, SiteId b, RoundId round, Duration after) {
  const Pair pair = std::minmax(a, b);
  std::uint32_t& failures = failures_[pair];
  failures += after < kEarlyFailure ? 1 : 2;
  if (failures < kApartAfter) return false;
  apart_[pair] = RoundId{round.value + kRoundsApart};
  return true;
}

void Reachability::forget(SiteId site) {
  std::erase_if(apart_, [site](const auto& entry) { return entry.first.first == site || entry.first.second == site; });
}

bool Reachability::are_apart(SiteId a, SiteId b, RoundId round) const {
  const auto found = apart_.find(std::minmax(a, b));
  return found != apart_.end() && found->second >= round;
}

std::map<SiteId, std::size_t> Reachability::cut_off(const Sites& sites, RoundId round) const {
  std::map<SiteId, std::size_t> from;
  for (const auto& [pair, until] : apart_) {
    if (until < round || !sites.contains(pair.first) || !sites.contains(pair.second)) continue;
    ++from[pair.first];
    ++from[pair.second];
  }
  return from;
}

std::set<SiteId> Reachability::owners(const Sites& sites, RoundId round) const {
  Address best = Address::kNone;
  for (const auto& [site, address] : sites) {
    if (!fails_itself(site, round)) best = std::max(best, address);
  }
  const auto from = cut_off(sites, round);
  std::set<SiteId> able;
  for (const auto& [site, address] : sites) {
    if (address >= best && !from.contains(site)) able.insert(site);
  }
  return able;
}

std::vector<SiteId> Reachability::to_leave_out(Sites sites, RoundId round) const {
  std::vector<SiteId> out;
  while (!sites.empty() && owners(sites, round).empty()) {
    const auto from = cut_off(sites, round);
    const SiteId worst = std::ranges::max_element(from, {}, [](const auto& entry) {
                           return std::pair(entry.second, entry.first);
                         })->first;
    sites.erase(worst);
    out.push_back(worst);
  }
  return out;
}

}  // namespace collab::protocol
