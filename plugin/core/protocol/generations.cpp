#include "core/protocol/generations.h"

#include <algorithm>
#include <utility>

#include "core/protocol/words.h"

namespace collab::protocol {

void Generations::begin(std::uint32_t generation, TimePoint now) {
  follows_ = std::ranges::any_of(expected_, [&](const auto& e) { return e.second.generation == generation; });
  std::erase_if(expected_, [&](const auto& e) { return e.second.generation != generation; });
  current_ = generation;
  last_seen_ = now;
}

void Generations::wait(LinkId link, wire::Join join, TimePoint now) {
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second.join.site == join.site; });  // on a newer link
  waiting_[link] = Waiting{std::move(join), now};
}

std::map<LinkId, wire::Join> Generations::take(std::uint32_t generation) {
  std::map<LinkId, wire::Join> taken;
  std::erase_if(waiting_, [&](auto& entry) {
    if (entry.second.join.generation != generation) return false;
    taken.emplace(entry.first, std::move(entry.second.join));
    return true;
  });
  return taken;
}

std::map<LinkId, wire::Join> Generations::take_earlier_than(std::uint32_t generation) {
  std::map<LinkId, wire::Join> taken;
  std::erase_if(waiting_, [&](auto& entry) {
    if (entry.second.join.generation >= generation) return false;
    taken.emplace(entry.first, std::move(entry.second.join));
    return true;
  });
  return taken;
}

std::uint32_t Generations::proven() const {
  std::uint32_t latest = 0;
  for (const auto& [link, waiting] : waiting_) {
    if (!waiting.join.report.voters.empty()) latest = std::max(latest, waiting.join.generation);
  }
  return latest;
}

void Generations::left_for(const std::string& site, std::uint32_t generation, TimePoint until) {
  expected_[site] = Expected{generation, until};
}

std::vector<std::string> Generations::expected(TimePoint now) const {
  std::vector<std::string> names;
  for (const auto& [site, expected] : expected_) {
    if (now < expected.until) names.push_back(site);
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
  if (const std::uint32_t trained = proven(); trained != 0) return trained;
  std::uint32_t lowest = UINT32_MAX;
  for (const auto& [link, waiting] : waiting_) lowest = std::min(lowest, waiting.join.generation);
  if (const std::uint32_t wanted = expected_generation(now);
      wanted != 0) {  // those who have left for it may be slower than one that was started again
    const bool here = std::ranges::any_of(waiting_, [&](const auto& w) { return w.second.join.generation == wanted; });
    return here ? std::optional(wanted) : std::nullopt;
  }
  const bool returns = lowest == current_;
  const bool open = current_ == 0 || ended || returns || now >= later(last_seen_, grace);
  return open ? std::optional(lowest) : std::nullopt;
}

TimePoint Generations::next_deadline(TimePoint now, Duration grace, Duration patience) const {
  TimePoint next = kNever;
  const auto consider = [&](TimePoint at) {
    if (at > now) next = std::min(next, at);
  };
  for (const auto& [site, expected] : expected_) consider(expected.until);
  if (!waiting_.empty()) consider(later(last_seen_, grace));
  for (const auto& [link, waiting] : waiting_) consider(later(waiting.since, patience));
  return next;
}

}  // namespace collab::protocol
