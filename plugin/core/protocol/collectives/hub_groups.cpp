#include "core/protocol/collectives/hub_groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"

namespace collab::protocol {

namespace {

// True if one group is a subset of the other, and the rank in the smaller group's call has opened both. Otherwise a
// rank outside one group may have made the other.
[[nodiscard]] bool are_twins(const HubGroup& one, std::uint32_t in_one, const HubGroup& other, std::uint32_t in_other) {
  const bool one_is_smaller = one.size() <= other.size();
  const HubGroup& smaller = one_is_smaller ? one : other;
  const HubGroup& larger = one_is_smaller ? other : one;
  const auto there = larger.member_of(smaller.members()[one_is_smaller ? in_one : in_other]);
  if (!there || !larger.is_open_at(*there)) return false;
  return std::ranges::all_of(smaller.members(), [&](RankId rank) { return larger.member_of(rank).has_value(); });
}

}  // namespace

HubGroup* HubGroups::find(GroupId id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

const std::set<GroupId>& HubGroups::of(RankId rank) const {
  static const std::set<GroupId> kNone;
  const auto found = of_rank_.find(rank);
  return found == of_rank_.end() ? kNone : found->second;
}

void HubGroups::collect_calls(CallsUnderWay& calls) const {
  for (const HubAgenda::Step& step : agenda_.open()) groups_.at(step.group).collect_calls(step.number, calls);
}

void HubGroups::on_assemble(RankId rank, const wire::Assemble& message) {
  HubGroup* const known = find(message.group);
  HubGroup* const group = known == nullptr ? open(rank, message) : known;
  if (group == nullptr) return;
  const auto member = group->member_of(rank);
  // The first rank to come may have used the number of another group. Then calls fail, but no rank is lost.
  if (!member || group->members() != message.members) return;
  group->assemble(*member);
  const bool again = world_.memory.has_closed(rank, message.group);
  world_.memory.reopen(rank, message.group);
  if (again) world_.hub.counters.calls_changed();
  if (again) group->send_errors(*member);  // it got none while it took no part
  group->catch_up();
}

// Null: the group was refused.
HubGroup* HubGroups::open(RankId rank, const wire::Assemble& message) {
  const std::string size = std::to_string(message.members.size()) + " ranks";
  const std::size_t cost = kGroupCost + kMemberCost * message.members.size();
  if (!std::ranges::all_of(message.members, [&](RankId member) { return world_.ranks.has(member); })) {
    world_.refuse(rank, "a group names a rank that is not of this world [hub.no-such-rank]");
  } else if (std::ranges::find(message.members, rank) == message.members.end()) {
    world_.refuse(rank, world_.ranks.text(rank) + " opens a group of " + size +
                            " to which it does not belong [hub.not-in-group]");
  } else if (world_.memory.require_room(rank, cost, "a group of " + size)) {
    HubCharge charge = world_.memory.charge(rank, cost);
    for (const RankId member : message.members) of_rank_[member].insert(message.group);
    return &groups_.try_emplace(message.group, world_, message, std::move(charge)).first->second;
  }
  return nullptr;
}

void HubGroups::on_disband(RankId rank, const wire::Disband& message) {
  if (!world_.memory.close(rank, message.group)) return;
  world_.hub.counters.calls_changed();
  HubGroup* const group = find(message.group);
  if (group == nullptr) return;
  group->settle();
  if (group->is_abandoned()) erase(*group);
}

void HubGroups::erase(const HubGroup& group) {
  const GroupId id = group.id();
  world_.memory.forget(id, group.members());
  for (const RankId member : group.members()) of_rank_[member].erase(id);
  if (group.parent().value != 0) {
    const auto found = pairs_.find(receiver_of(group));
    if (found != pairs_.end() && found->second.erase(id) > 0 && found->second.empty()) pairs_.erase(found);
  }
  groups_.erase(id);
}

void HubGroups::on_contribute(RankId rank, const wire::Contribute& message, const Payload& payload) {
  HubGroup* const group = find(message.group);
  const auto member = group == nullptr ? std::nullopt : group->member_of(rank);
  if (group != nullptr && !(member && group->is_open_at(*member)))
    return send_group_mismatch(rank, *group, message.step);
  if (group == nullptr) {
    return world_.refuse(rank, "a part for a group that was not opened [hub.group-not-open]");
  }
  const auto slow = group->find_slow_receiver(*member, message, payload.bytes);
  if (group->lacks_room(*member, message, payload.bytes) || (slow && is_late(*slow))) {
    make_room(rank, cost_of(message, payload.bytes));
  }
  if (!group->contribute(*member, message, payload)) return;
  if (group->parent().value != 0 && *member == 0) pairs_[receiver_of(*group)].insert(group->id());
  notify_receiver(*group);
  compare_with_twin(*group, *member, message);
  group->settle(message.step);
}

// A rank is not refused because others do not take its parts: these are charged to the others. An only hub goes on
// without a rank that has more unacknowledged parts than a rank may hold, some of them for longer than a grace.
void HubGroups::make_room(RankId rank, std::size_t bytes) {
  pass_charges(rank);
  world_.hub.worlds.make_room_for_parts(bytes);
  if (!world_.only_hub) return;
  std::set<RankId> others;
  for (const GroupId id : of(rank)) {
    const std::vector<RankId>& members = groups_.at(id).members();
    others.insert(members.begin(), members.end());
  }
  std::vector<RankId> over;
  for (const RankId other : others) {
    if (other == rank || world_.ranks[other].away() || !world_.memory.leaves_too_much(other)) continue;
    pass_charges(other);  // it may have taken some of those parts since
    if (world_.memory.leaves_too_much(other) && is_late(other)) over.push_back(other);
  }
  if (over.empty()) return;
  world_.ranks.mark_gone(
      over, "it has not taken what is held for it for a whole grace, and that is more than a rank may have");
  world_.membership.advance();
}

bool HubGroups::is_late(RankId rank) {
  return std::ranges::any_of(of(rank), [&](GroupId id) {
    const HubGroup& group = groups_.at(id);
    return group.is_late(*group.member_of(rank));
  });
}

void HubGroups::pass_charges(RankId rank) {
  for (const GroupId id : of(rank)) {
    HubGroup& group = groups_.at(id);
    group.pass_charges(*group.member_of(rank));
  }
}

void HubGroups::send_group_mismatch(RankId rank, const HubGroup& group, std::uint64_t step) {
  wire::StepResult result{group.id(), step, world_.membership.ballot(), true, {}, ""};
  result.error = "a group of " + std::to_string(group.size()) + " ranks has different members at " +
                 world_.ranks.text(rank) +
                 "; all ranks of a group must give new_group() the same ranks [hub.group-differs]";
  world_.send(rank, std::move(result));
}

// The call of this number is another call in the twin group, so neither step would ever be complete. From here on the
// members of both groups count their steps differently.
void HubGroups::compare_with_twin(HubGroup& group, std::uint32_t member, const wire::Contribute& message) {
  HubGroup* const twin = message.call == 0 ? nullptr : find(GroupId(message.group.value ^ 1));
  std::uint32_t there = 0;
  const wire::Contribute* const other = twin == nullptr ? nullptr : twin->find_call(message.call, there);
  if (other == nullptr || !are_twins(group, member, *twin, there)) return;
  const std::string why = calls_differ(twin->in_call_text(there, *other), group.in_call_text(member, message));
  twin->give_up(why);
  group.give_up(why);
}

void HubGroups::on_result_ack(RankId rank, const wire::ResultAck& message) {
  HubGroup* const group = find(message.group);
  const auto member = group == nullptr ? std::nullopt : group->member_of(rank);
  if (member) group->on_result_ack(*member, message);
}

// The rank's held and completed steps may end steps here. It does not know errors that were decided meanwhile.
void HubGroups::catch_up(RankId rank) {
  for (const GroupId id : of(rank)) {
    HubGroup& group = groups_.at(id);
    group.send_errors(*group.member_of(rank));
    group.catch_up();
  }
}

void HubGroups::settle() {
  std::vector<GroupId> abandoned;
  for (auto& [id, group] : groups_) {
    group.settle();
    if (group.is_abandoned()) abandoned.push_back(id);
  }
  for (const GroupId id : abandoned) erase(groups_.at(id));
}

void HubGroups::settle(RankId rank) {
  for (const GroupId id : of(rank)) groups_.at(id).settle();
}

void HubGroups::on_tick() {
  for (const HubAgenda::Step& step : agenda_.due(world_.hub.now)) groups_.at(step.group).on_due(step.number);
}

void HubGroups::clear() {
  world_.hub.counters.calls_changed();
  groups_.clear();
  of_rank_.clear();
  receivers_.clear();
  pairs_.clear();
}

// ---- receivers that wait for any sender

void HubGroups::on_resolve(RankId rank, const wire::ResolveSender& message) {
  const Receiver receiver{rank, message.group, message.tag};
  if (!receivers_.contains(receiver)) {
    if (!world_.memory.require_room(rank, kEntryCost, "another sender that it looks for")) return;
    receivers_[receiver] = world_.memory.charge(rank, kEntryCost);
  }
  HubGroup* const parent = find(message.group);
  const auto found = pairs_.find(receiver);
  if (parent == nullptr || found == pairs_.end()) return;
  std::set<GroupId>& pairs = found->second;
  while (!pairs.empty()) {
    world_.hub.counters.looked_at(1);
    const HubGroup& pair = groups_.at(*pairs.begin());
    if (pair.waits_to_send() && parent->member_of(pair.members().front())) return notify_receiver(pair);
    pairs.erase(pairs.begin());
  }
  pairs_.erase(found);
}

void HubGroups::notify_receiver(const HubGroup& pair) {
  if (pair.parent().value == 0) return;
  const RankId to = pair.members().back();
  const auto waits = receivers_.find(receiver_of(pair));
  HubGroup* const parent = find(pair.parent());
  if (waits == receivers_.end() || parent == nullptr || !pair.waits_to_send()) return;
  const auto from = parent->member_of(pair.members().front());
  if (!from) return;
  world_.send(to, wire::SenderResolved{pair.parent(), pair.tag(), *from});
  receivers_.erase(waits);
}

}  // namespace collab::protocol
