// What the ranks of a group do together, step by step.
#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_state.h"
#include "core/protocol/formatting.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

[[nodiscard]] std::size_t cost_of(const wire::Contribute& contribute, std::size_t bytes) {
  return kPartCost + sizeof(std::uint64_t) * contribute.splits.size() + bytes;
}

}  // namespace

std::string in_bytes(std::size_t bytes) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  return bytes > 0 && bytes % kMiB == 0 ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes) + " bytes";
}

std::string call_text(const wire::Contribute& contribute) {
  return contribute.shape.empty() ? contribute.operation : contribute.operation + " " + contribute.shape;
}

std::string differ(const HubWorld& room, RankId a, const wire::Contribute& in_a, RankId b,
                   const wire::Contribute& in_b) {
  return "the ranks are not in the same call: " + rank_text(room, a) + " is in " + call_text(in_a) + ", " +
         rank_text(room, b) + " is in " + call_text(in_b) + " [hub.calls-differ]";
}

bool is_away(const HubWorld& room, const HubGroup& group, std::uint32_t member) {
  const HubRank& rank = room.ranks[group.members[member].value];
  return rank.away() || rank.closed.contains(group.id);
}

std::uint64_t completed_by(const HubWorld& room, const HubGroup& group, std::uint32_t member) {
  const HubRank& rank = room.ranks[group.members[member].value];
  const auto found = rank.completed.find(group.id);
  return found == rank.completed.end() ? 0 : found->second;
}

CallsUnderWay CollectiveHub::calls_under_way() const {
  CallsUnderWay calls;
  for (const auto& [world, room] : state_->rooms) {
    const auto site_of = [&room = room](RankId rank) { return room.sites[room.site_of[rank.value]]; };
    for (const auto& [id, group] : room.groups) {
      for (const auto& [number, step] : group.steps) {
        if (step.decided) continue;
        std::set<std::string> awaits;
        for (std::uint32_t i = 0; i < group.members.size(); ++i) {
          if (!step.parts.contains(i) && !is_away(room, group, i)) awaits.insert(site_of(group.members[i]));
        }
        for (const auto& [member, part] : step.parts) {
          if (is_away(room, group, member)) continue;
          InCall& call = calls.sites[site_of(group.members[member])];
          call.call = call_text(part.contribute);
          call.awaits.insert(awaits.begin(), awaits.end());
          call.stands_still = call.stands_still || part.contribute.operation.starts_with(kStandsStill);
        }
      }
    }
  }
  return calls;
}

void CollectiveHub::State::assemble(HubWorld& room, RankId rank, const wire::Assemble& message) {
  const LinkId link = room.ranks[rank.value].link;
  HubGroup* group = group_of(room, message.group);
  if (group == nullptr) {
    const bool known = std::ranges::all_of(message.members, [&](RankId m) { return m.value < room.ranks.size(); });
    const std::size_t cost = kGroupCost + kMemberCost * message.members.size();
    if (!known) return refuse(link, "a group names a rank that is not of this world [hub.no-such-rank]");
    if (std::ranges::find(message.members, rank) == message.members.end()) {
      return refuse(link, rank_text(room, rank) + " opens a group of " + std::to_string(message.members.size()) +
                              " ranks to which it does not belong [hub.not-in-group]");
    }
    if (!remembers(room, rank, cost, "a group of " + std::to_string(message.members.size()) + " ranks")) return;
    group = &room.groups[message.group];
    *group = {message.group, message.members, message.parent, message.tag, {}, {}, 0, {}, {}, {}};
    group->assembled.resize(message.members.size());
    group->opener = room.ranks[rank.value].memory;
    group->charge = HubCharge(group->opener, cost);
  }
  const auto member = member_of(*group, rank);
  if (!member || group->members != message.members) {
    return refuse(link, "a group of " + std::to_string(group->members.size()) + " ranks has other members at " +
                            rank_text(room, rank) +
                            "; all ranks of a group give new_group() the same ranks [hub.group-differs]");
  }
  group->assembled[*member] = true;
  room.ranks[rank.value].closed.erase(message.group);
  note_closed(room.ranks[rank.value]);
  catch_up(room, *group);
}

void CollectiveHub::State::disband(HubWorld& room, RankId rank, const wire::Disband& message) {
  HubRank& each = room.ranks[rank.value];
  if (!each.closed.contains(message.group)) {
    if (each.closed.size() >= wire::kMaxGroups) each.closed.erase(each.closed.begin());
    note_closed(each);
    if (!remembers(room, rank, kEntryCost, "another group that it has closed")) return;
    each.closed.insert(message.group);
    note_closed(each);
  }
  each.completed.erase(message.group);
  each.held.erase(message.group);
  HubGroup* group = group_of(room, message.group);
  if (group == nullptr) return;
  settle_all(room, *group);
  for (std::uint32_t i = 0; i < group->members.size(); ++i) {
    if (!is_away(room, *group, i)) return;
  }
  for (const RankId member : group->members) {
    room.ranks[member.value].closed.erase(message.group);
    note_closed(room.ranks[member.value]);
  }
  room.stood.erase(message.group);
  room.groups.erase(message.group);
}

void CollectiveHub::State::contribute(HubWorld& room, RankId rank, const wire::Contribute& message,
                                      const BufferPtr& payload) {
  const LinkId link = room.ranks[rank.value].link;
  HubGroup* group = group_of(room, message.group);
  const auto member = group == nullptr ? std::nullopt : member_of(*group, rank);
  if (!member || !group->assembled[*member])
    return refuse(link, "a part for a group that was not opened [hub.group-not-open]");
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : message.splits) total += bytes;
  const Payload part = whole(payload);
  if (!message.splits.empty() && (message.splits.size() != group->members.size() || total != part.bytes)) {
    return refuse(link, message.operation + " was split for " + std::to_string(message.splits.size()) +
                            " members into " + std::to_string(total) + " bytes, the group has " +
                            std::to_string(group->members.size()) + " and came " + std::to_string(part.bytes) +
                            " [hub.bad-split]");
  }
  const std::uint64_t completed = completed_by(room, *group, *member);
  if (message.step <= completed) return;  // its error was on the way to it
  if (message.step != completed + 1) {
    return refuse(
        link, "step " + std::to_string(message.step) + " follows " + std::to_string(completed) + " [hub.step-order]");
  }
  const auto begun = group->steps.find(message.step);
  if (begun != group->steps.end() && begun->second.decided) {
    if (!begun->second.decided->error.empty()) return;  // it was told before it came
    return answer(room, *group, message.step, *member);
  }
  if (const std::string why = why_not_held(room, *group, *member, message, part.bytes); !why.empty()) {
    return refuse(link, why);
  }
  HubStep& step = group->steps[message.step];
  if (const auto before = step.parts.find(*member); before != step.parts.end()) before->second.charge.set(0);
  HubPart brought{message, part, now, kNever, {room.ranks[rank.value].parts, cost_of(message, part.bytes)}};
  if (message.timeout_ms != 0) brought.deadline = later(now, std::chrono::milliseconds(message.timeout_ms));
  const auto [place, fresh] = step.parts.try_emplace(*member, std::move(brought));
  if (!fresh) {  // its link has fallen since; its time goes on
    brought.since = place->second.since;
    brought.deadline = std::min(brought.deadline, place->second.deadline);
    place->second = std::move(brought);
  }
  tell_resolver(room, *group);
  compare_with_twin(room, *group, message.step, *member);
  settle(room, *group, message.step);
}

// Empty: the part may be held.
std::string CollectiveHub::State::why_not_held(const HubWorld& room, const HubGroup& group, std::uint32_t member,
                                               const wire::Contribute& message, std::size_t bytes) const {
  const std::string what =
      rank_text(room, group.members[member]) + " brings " + in_bytes(bytes) + " to " + call_text(message);
  if (bytes > kMaxHubPart) {
    return what + ": a part is at most " + in_bytes(kMaxHubPart) +
           "; bring longer ones in several steps [hub.part-long]";
  }
  std::size_t others = 0;
  std::size_t mine = 0;
  if (const auto step = group.steps.find(message.step); step != group.steps.end()) {
    for (const auto& [from, part] : step->second.parts) {
      (from == member ? mine : others) += from == member ? part.charge.bytes() : part.payload.bytes;
    }
  }
  const std::size_t even = kMaxHubStep / group.members.size();
  if (bytes > even && others + bytes > kMaxHubStep) {
    return what + ", to which others have brought " + in_bytes(others) + ": a step carries at most " +
           in_bytes(kMaxHubStep) + ", " + in_bytes(even) + " for each of " + std::to_string(group.members.size()) +
           " members; bring longer ones in several steps [hub.step-long]";
  }
  const HubBudget& share = *room.ranks[group.members[member].value].parts;
  const std::size_t more = cost_of(message, bytes);
  if (more <= mine || share.fits(more - mine)) return "";
  const std::string held =
      what + ", and " + in_bytes(share.held - mine) + " of its parts are held until others take them: ";
  if (share.held + more - mine > share.all->each) {
    return held + "at most " + in_bytes(share.all->each) + " of a rank are; start fewer calls at once [hub.parts-held]";
  }
  return held + "this coordinator holds " + in_bytes(share.all->held) + " of at most " + in_bytes(share.all->most) +
         ", and a rank's share is then " + in_bytes(share.own()) + "; start fewer calls at once [hub.parts-held]";
}

// The same call in the twin group is another one there: neither step would ever be whole.
void CollectiveHub::State::compare_with_twin(HubWorld& room, HubGroup& group, std::uint64_t number,
                                             std::uint32_t member) {
  const wire::Contribute& mine = group.steps.at(number).parts.at(member).contribute;
  HubGroup* twin = mine.call == 0 ? nullptr : group_of(room, GroupId(group.id.value ^ 1));
  if (twin == nullptr) return;
  for (const auto& [its_number, other] : twin->steps) {
    const auto theirs =
        std::ranges::find_if(other.parts, [&](const auto& part) { return part.second.contribute.call == mine.call; });
    if (other.decided || theirs == other.parts.end()) continue;
    const std::string why =
        differ(room, twin->members[theirs->first], theirs->second.contribute, group.members[member], mine);
    give_up(room, *twin, why);
    return give_up(room, group, why);
  }
}

// From here on its members count their steps differently.
void CollectiveHub::State::give_up(HubWorld& room, HubGroup& group, const std::string& why) {
  group.given_up = why;
  settle_all(room, group);
}

void CollectiveHub::State::taken(HubWorld& room, RankId rank, const wire::ResultAck& message) {
  HubGroup* group = group_of(room, message.group);
  const auto member = group == nullptr ? std::nullopt : member_of(*group, rank);
  if (!member) return;
  HubRank& each = room.ranks[rank.value];
  const std::uint64_t stood = newest_stood(room, message.group);
  if (message.step <= stood || (room.only_hub && message.step <= group->newest_decided)) {
    std::uint64_t& completed = each.completed[message.group];
    completed = std::max(completed, message.step);
  } else if (!room.only_hub && group->steps.contains(message.step)) {
    each.held[message.group][message.step] = message.ballot;
  }
  settle(room, *group, message.step);
}

// ---- sends to whoever asks --------------------------------------------------------------------------

void CollectiveHub::State::resolve(HubWorld& room, RankId rank, const wire::ResolveSender& message) {
  const HubSeek sought{rank, {message.group, message.tag}};
  if (!room.resolving.contains(sought)) {
    if (!remembers(room, rank, kEntryCost, "another sender that it looks for")) return;
    room.resolving[sought] = HubCharge(room.ranks[rank.value].memory, kEntryCost);
  }
  for (const auto& [id, group] : room.groups) {
    if (group.parent == message.group && group.tag == message.tag && group.members.back() == rank) {
      tell_resolver(room, group);
    }
  }
}

void CollectiveHub::State::tell_resolver(HubWorld& room, const HubGroup& pair) {
  if (pair.parent.value == 0) return;
  const auto resolver = room.resolving.find({pair.members.back(), {pair.parent, pair.tag}});
  const HubGroup* parent = group_of(room, pair.parent);
  if (resolver == room.resolving.end() || parent == nullptr) return;
  const bool waits = std::ranges::any_of(
      pair.steps, [](const auto& step) { return !step.second.decided && step.second.parts.contains(0); });
  const auto from = member_of(*parent, pair.members.front());
  if (!waits || !from) return;
  send(room.ranks[pair.members.back().value].link, wire::SenderResolved{pair.parent, pair.tag, *from});
  room.resolving.erase(resolver);
}

}  // namespace collab::protocol
