#include "core/protocol/collectives/hub_memory.h"

#include <algorithm>

#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"
#include "core/wire/limits.h"

namespace collab::protocol {

HubMemory::HubMemory(HubWorld& world, HubTotal& parts, HubTotal& memory) : world_(world) {
  ranks_.reserve(world.ranks.size());
  for (std::uint32_t i = 0; i < world.ranks.size(); ++i) {
    const HubBudget each(parts, world.ranks.size());
    ranks_.push_back({each, each, HubBudget(memory, world.ranks.size())});
  }
}

std::uint64_t HubMemory::completed(RankId rank, GroupId group) const {
  const auto& completed = ranks_[rank.value].completed;
  const auto found = completed.find(group);
  return found == completed.end() ? 0 : found->second;
}

const HubMemory::Steps& HubMemory::held(RankId rank, GroupId group) const {
  static const Steps kNone;
  const auto& held = ranks_[rank.value].held;
  const auto found = held.find(group);
  return found == held.end() ? kNone : found->second;
}

std::optional<wire::Ballot> HubMemory::held(RankId rank, GroupId group, std::uint64_t step) const {
  const Steps& steps = held(rank, group);
  const auto found = steps.find(step);
  return found == steps.end() ? std::nullopt : std::optional(found->second);
}

bool HubMemory::has_closed(RankId rank, GroupId group) const { return ranks_[rank.value].closed.contains(group); }

bool HubMemory::recall(const wire::Enter& message) {
  Rank& rank = ranks_[message.rank.value];
  const std::size_t entries = message.completed.size() + message.held.size() + message.closed.size();
  const std::size_t before = rank.named.bytes();
  const std::size_t bytes = kEntryCost * entries;
  const std::string what = std::to_string(entries) + " steps and groups that it names";
  if (bytes > before && !require_room(message.rank, bytes - before, what)) return false;
  ++recalls_;
  world_.hub.counters.calls_changed();  // the rank may have closed groups
  rank.completed.clear();
  rank.held.clear();
  for (const wire::Completed& each : message.completed) rank.completed[each.group] = each.steps;
  for (const wire::Held& each : message.held) hold(message.rank, each.group, each.step, each.ballot);
  rank.closed = {message.closed.begin(), message.closed.end()};
  rank.entered_with = message.completed.size() + message.held.size();
  rank.named = charge(message.rank, 0);
  charge_closed(rank);
  return true;
}

bool HubMemory::require_room(RankId rank, std::size_t bytes, const std::string& what) {
  const HubBudget& memory = ranks_[rank.value].memory;
  if (memory.fits(bytes)) return true;
  const bool own = memory.held() + bytes > memory.all().each();
  world_.refuse(rank, world_.ranks.text(rank) + " asks this coordinator to remember " + what + ": that is " +
                          in_bytes(memory.held() + bytes) + " for it, and at most " +
                          in_bytes(own ? memory.all().each() : memory.share()) +
                          (own ? " is kept for one rank" : " is its share while all ranks together hold too much") +
                          "; destroy process groups that are no longer used [hub.memory]");
  return false;
}

void HubMemory::hold(RankId rank, GroupId group, std::uint64_t step, const wire::Ballot& ballot) {
  ranks_[rank.value].held[group][step] = ballot;
}

void HubMemory::complete(RankId rank, GroupId group, std::uint64_t step) {
  Rank& each = ranks_[rank.value];
  std::uint64_t& completed = each.completed[group];
  completed = std::max(completed, step);
  if (const auto held = each.held.find(group); held != each.held.end()) held->second.erase(step);
}

bool HubMemory::close(RankId rank, GroupId group) {
  Rank& each = ranks_[rank.value];
  if (!each.closed.contains(group)) {
    if (each.closed.size() >= wire::kMaxGroups) each.closed.erase(each.closed.begin());
    charge_closed(each);
    if (!require_room(rank, kEntryCost, "another group that it has closed")) return false;
    each.closed.insert(group);
    charge_closed(each);
  }
  each.completed.erase(group);
  each.held.erase(group);
  return true;
}

void HubMemory::reopen(RankId rank, GroupId group) {
  ranks_[rank.value].closed.erase(group);
  charge_closed(ranks_[rank.value]);
}

void HubMemory::forget(GroupId group, const std::vector<RankId>& members) {
  for (const RankId member : members) {
    reopen(member, group);
    ranks_[member.value].completed.erase(group);  // a gone rank has not closed the group
    ranks_[member.value].held.erase(group);
  }
}

void HubMemory::charge_closed(Rank& rank) { rank.named.set(kEntryCost * (rank.entered_with + rank.closed.size())); }

}  // namespace collab::protocol
