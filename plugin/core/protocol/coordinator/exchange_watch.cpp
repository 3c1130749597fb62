#include "core/protocol/coordinator/exchange_watch.h"

#include <algorithm>
#include <utility>

#include "core/protocol/formatting.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {
constexpr std::size_t kMostNames = 1024;
}

void ExchangeWatch::begin(const std::set<SiteId>& sites, TimePoint now) {
  sites_.clear();
  began_ = now;
  for (const SiteId site : sites) sites_[site].moved_at = now;
}

void ExchangeWatch::heard(SiteId site, const wire::Exchanged& said, TimePoint now) {
  const auto found = sites_.find(site);
  if (found == sites_.end()) return;
  if (found->second.said.moved != said.moved) found->second.moved_at = now;
  found->second.said = said;
}

void ExchangeWatch::slept(Duration time) {
  began_ += time;
  for (auto& [id, site] : sites_) site.moved_at += time;
}

std::uint32_t ExchangeWatch::count_stall(const std::string& name) {
  if (held_up_.size() >= kMostNames && held_up_.count(name) == 0) {
    held_up_.erase(std::ranges::min_element(held_up_, {}, [](const auto& each) { return each.second; }));
  }
  return ++held_up_[name];
}

std::map<SiteId, std::set<SiteId>> ExchangeWatch::missing_parts(bool means) const {
  std::map<SiteId, std::set<SiteId>> by;
  for (const auto& [id, site] : sites_) {
    if (site.said.means != means) continue;
    for (const SiteId lacked : site.said.lacks) {
      if (lacked != id && sites_.count(lacked) != 0) by[lacked].insert(id);
    }
  }
  return by;
}

std::optional<ExchangeWatch::Stall> ExchangeWatch::stall(const std::set<SiteId>& open, const std::set<SiteId>& voters,
                                                         Duration limit, TimePoint now) const {
  std::set<SiteId> moving;
  TimePoint vouched = began_;  // the last move that a voter has reported
  for (const auto& [id, site] : sites_) {
    if (now < later(site.moved_at, limit)) moving.insert(id);
    if (voters.contains(id)) vouched = std::max(vouched, site.moved_at);
  }
  if (sites_.size() < 2) return std::nullopt;
  if (moving.size() > 1) {
    // What newcomers send to each other may take longer than all the rest. Then the others have what they need.
    if (now < later(vouched, std::max(limit, 2 * (vouched - began_)))) return std::nullopt;
    std::erase_if(moving, [&](SiteId site) { return !open.contains(site); });
    if (!moving.empty()) return Stall{.newcomers = std::move(moving)};
  }
  auto by = missing_parts(false);
  if (by.empty()) by = missing_parts(true);
  if (by.empty()) {  // no site lacks anything, yet some have not sent Done
    for (const SiteId site : open) by[site] = {};
  }
  std::size_t most = 0;
  for (const auto& [site, others] : by) most = std::max(most, others.size());
  Stall found;
  for (const auto& [site, others] : by) {
    if (others.size() == most) found.held_up_by.insert(site);
  }
  if (2 * found.held_up_by.size() >= sites_.size()) return Stall{};
  if (most == 1) {
    const SiteId lacked = *found.held_up_by.begin();
    return Stall{{}, std::pair(*by[lacked].begin(), lacked)};
  }
  return found;
}

std::set<SiteId> ExchangeWatch::slow(const std::set<SiteId>& owners) const {
  std::set<SiteId> found;
  for (const auto& [site, others] : missing_parts(false)) {
    const auto lack = std::ranges::count_if(others, [&](SiteId other) {
      // A list that is cut short names the lowest sites, not the slowest.
      return owners.contains(other) && sites_.at(other).said.lacks.size() < wire::kMaxLacked;
    });
    if (2 * static_cast<std::size_t>(lack) > owners.size() - owners.count(site)) found.insert(site);
  }
  return 2 * found.size() < sites_.size() ? found : std::set<SiteId>{};
}

std::set<SiteId> ExchangeWatch::sites_withholding_means() const {
  std::set<SiteId> found;
  for (const auto& [site, others] : missing_parts(true)) {
    if (2 * others.size() > sites_.size() - 1) found.insert(site);
  }
  return 2 * found.size() < sites_.size() ? found : std::set<SiteId>{};
}

bool ExchangeWatch::is_progressing(const std::set<SiteId>& open) {
  std::size_t moving = 0;
  for (auto& [id, site] : sites_) {
    const std::uint64_t moved = site.said.moved;
    const std::uint64_t since = moved - std::min(moved, std::exchange(site.moved_before, moved));
    if (open.contains(id) && since > moved / 10) ++moving;
  }
  return 2 * moving > open.size();
}

}  // namespace collab::protocol
