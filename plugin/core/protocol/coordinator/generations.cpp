#include "core/protocol/coordinator/generations.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/protocol/formatting.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

constexpr Duration kRememberedFor = std::chrono::seconds(60);
constexpr std::size_t kMaxRemembered = wire::kMaxSites;  // names in lost_, and in expected_

}  // namespace

void Generations::begin(std::uint32_t generation, TimePoint now) {
  follows_ = std::ranges::any_of(expected_, [&](const auto& e) { return e.second.generation == generation; });
  std::erase_if(expected_, [&](const auto& e) { return e.second.generation < generation; });
  current_ = generation;
  last_seen_ = now;
}

std::optional<LinkId> Generations::wait(LinkId link, wire::Join join, TimePoint now) {
  // It is not known yet which generation sites train. Those of an earlier one may be about to come.
  if (current_ == 0 && waiting_.empty()) last_seen_ = now;
  std::erase_if(lost_, [&](const auto& entry) { return now >= entry.second.second; });
  trained_.reset();
  std::optional<LinkId> replaced;
  TimePoint since = now;
  if (const auto lost = lost_.find(join.site); lost != lost_.end()) since = lost->second.first;
  for (const auto& [other, waiting] : waiting_) {
    if (waiting.join.site != join.site) continue;
    if (other != link) replaced = other;
    since = waiting.since;
  }
  if (replaced) waiting_.erase(*replaced);
  lost_.erase(join.site);
  waiting_[link] = Waiting{std::move(join), since, now};
  return replaced;
}

void Generations::forget(LinkId link, TimePoint now) {
  const auto found = waiting_.find(link);
  if (found == waiting_.end()) return;
  std::erase_if(lost_, [&](const auto& entry) { return now >= entry.second.second; });
  if (lost_.size() < kMaxRemembered) lost_[found->second.join.site] = {found->second.since, later(now, kRememberedFor)};
  trained_.reset();
  waiting_.erase(found);
}

void Generations::drop(LinkId link) {
  trained_.reset();
  waiting_.erase(link);
}

template <class Wanted>
std::map<LinkId, wire::Join> Generations::take_if(Wanted wanted) {
  std::map<LinkId, wire::Join> taken;
  std::erase_if(waiting_, [&](auto& entry) {
    if (!wanted(entry.second.join.generation)) return false;
    taken.emplace(entry.first, std::move(entry.second.join));
    return true;
  });
  if (!taken.empty()) trained_.reset();
  return taken;
}

std::map<LinkId, wire::Join> Generations::take(std::uint32_t generation) {
  return take_if([generation](std::uint32_t its) { return its == generation; });
}

std::map<LinkId, wire::Join> Generations::take_earlier_than(std::uint32_t generation) {
  return take_if([generation](std::uint32_t its) { return its < generation; });
}

// One site's word is no proof. Most of the voters that it names must be here at that generation, and at least as many
// sites as train here.
std::uint32_t Generations::proven(std::size_t trainers) const {
  if (!trained_) trained_ = find_trained();
  std::uint32_t latest = 0;
  for (const auto& [generation, members] : *trained_) {
    if (members >= trainers) latest = std::max(latest, generation);
  }
  return latest;
}

std::map<std::uint32_t, std::size_t> Generations::find_trained() const {
  std::map<std::uint32_t, std::size_t> members;
  std::map<std::uint32_t, std::set<std::string_view>> names;
  for (const auto& [link, waiting] : waiting_) {
    names[waiting.join.generation].insert(waiting.join.site);
    if (waiting.join.report.member) ++members[waiting.join.generation];
  }
  std::map<std::uint32_t, std::size_t> trained;
  for (const auto& [link, waiting] : waiting_) {
    const std::uint32_t generation = waiting.join.generation;
    if (!waiting.join.report.member || trained.contains(generation)) continue;
    const std::vector<wire::Voter>& voters = waiting.join.report.record.voters;
    const auto& here = names[generation];
    const auto is_here = [&](const wire::Voter& voter) { return voter.left || here.contains(voter.name); };
    if (std::cmp_greater(2 * std::ranges::count_if(voters, is_here), voters.size())) {
      trained[generation] = members[generation];
    }
  }
  return trained;
}

void Generations::left_for(const std::string& site, std::uint32_t generation, TimePoint now, TimePoint until) {
  std::erase_if(expected_, [&](const auto& entry) { return now >= entry.second.until; });
  if (expected_.size() < kMaxRemembered) expected_[site] = Expected{generation, until};
}

std::vector<std::string> Generations::expected(TimePoint now) const {
  std::vector<std::string> names;
  for (const auto& [site, expected] : expected_) {
    if (now < expected.until) names.push_back(site);
  }
  return names;
}

std::vector<std::string> Generations::expected_here(TimePoint now) const {
  std::vector<std::string> names;
  for (const auto& [site, expected] : expected_) {
    if (now < expected.until && expected.generation == current_) names.push_back(site);
  }
  return names;
}

std::uint32_t Generations::expected_generation(TimePoint now) const {
  std::uint32_t earliest = 0;
  for (const auto& [site, expected] : expected_) {
    if (now < expected.until && (earliest == 0 || expected.generation < earliest)) earliest = expected.generation;
  }
  return earliest;
}

std::optional<std::uint32_t> Generations::may_begin(TimePoint now, Duration grace, bool ended) const {
  if (waiting_.empty()) return std::nullopt;
  if (const std::uint32_t trained = proven(0); trained > current_) return trained;
  std::uint32_t lowest = UINT32_MAX;
  for (const auto& [link, waiting] : waiting_) lowest = std::min(lowest, waiting.join.generation);
  // Sites that left for a generation may come later than a site that was restarted.
  if (const std::uint32_t wanted = expected_generation(now); wanted != 0) {
    const bool here = std::ranges::any_of(waiting_, [&](const auto& w) { return w.second.join.generation == wanted; });
    return here ? std::optional(wanted) : std::nullopt;
  }
  const bool returns = lowest == current_;
  const bool first = current_ == 0 && lowest == 1;
  const bool open = first || ended || returns || now >= later(last_seen_, grace);
  return open ? std::optional(lowest) : std::nullopt;
}

TimePoint Generations::next_deadline(TimePoint now, Duration grace, Duration join_timeout) const {
  TimePoint next = kNever;
  const auto consider = [&](TimePoint at) {
    if (at > now) next = std::min(next, at);
  };
  for (const auto& [site, expected] : expected_) consider(expected.until);
  if (!waiting_.empty()) consider(later(last_seen_, grace));
  for (const auto& [link, waiting] : waiting_) {
    consider(later(waiting.since, join_timeout));
    consider(waiting.tell);
  }
  return next;
}

}  // namespace collab::protocol
