// How a step ends: decided by the hub, held by its members, standing once all that are not gone hold it.
#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_state.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxSteps = 64;  // failed ones that a member has not taken, of the only hub

[[nodiscard]] bool alike(const wire::Contribute& a, const wire::Contribute& b) {
  return a.operation == b.operation && a.absence == b.absence && a.root == b.root;
}

[[nodiscard]] std::string why_away(const HubWorld& room, const HubGroup& group, std::uint32_t member) {
  const HubRank& rank = room.ranks[group.members[member].value];
  const std::string who = rank_text(room, group.members[member]);
  if (!rank.gone.empty()) return who + " is gone: " + rank.gone;
  return who + (rank.left ? " has left" : " has closed this group");
}

// The part of `bring` that is for one member.
[[nodiscard]] Payload part_for(const HubPart& part, std::uint32_t member) {
  if (part.contribute.splits.empty()) return part.payload;
  Payload payload = part.payload;
  for (std::uint32_t before = 0; before < member; ++before) payload.offset += part.contribute.splits[before];
  payload.bytes = part.contribute.splits[member];
  return payload;
}

[[nodiscard]] std::optional<wire::Ballot> held_by(const HubRank& rank, GroupId group, std::uint64_t number) {
  const auto steps = rank.held.find(group);
  if (steps == rank.held.end()) return std::nullopt;
  const auto held = steps->second.find(number);
  return held == steps->second.end() ? std::nullopt : std::optional(held->second);
}

// Of a step that this hub has not decided. Who is here has promised our ballot: what it does not hold now it will hold
// under no older one, and without it nothing stands.
[[nodiscard]] StepPhase phase_of(const HubWorld& room, const HubGroup& group, std::uint64_t number) {
  if (number <= newest_stood(room, group.id)) return StepPhase::kStood;
  std::optional<wire::Ballot> under;
  bool all_here = true;
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    if (is_away(room, group, i)) continue;
    const HubRank& rank = room.ranks[group.members[i].value];
    if (!rank.in) {
      all_here = false;
      continue;
    }
    const std::optional<wire::Ballot> held = held_by(rank, group.id, number);
    if (!held || (under && *under != *held)) return StepPhase::kOpen;
    under = held;
  }
  return all_here && under ? StepPhase::kHeld : StepPhase::kUnknown;
}

// Without whom a step goes on, unless somebody is still to come.
struct Absent {
  std::vector<std::uint32_t> members;
  bool waits = false;
};

[[nodiscard]] Absent absent_of(const HubWorld& room, const HubGroup& group, const HubStep& step) {
  Absent absent;
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    const auto part = step.parts.find(i);
    if (part != step.parts.end() && !part->second.contribute.absent) continue;
    if (part == step.parts.end() && !is_away(room, group, i)) return {{}, true};
    absent.members.push_back(i);
  }
  return absent;
}

// Why a step fails without these; empty: it goes on.
[[nodiscard]] std::string why_failed(const HubWorld& room, const HubGroup& group, const HubStep& step,
                                     const std::vector<std::uint32_t>& absent) {
  const wire::Contribute& first = step.parts.begin()->second.contribute;
  const bool root_away = std::ranges::binary_search(absent, first.root);
  const bool needed =
      first.absence == wire::Absence::kFails || (first.absence == wire::Absence::kNeedsRoot && root_away);
  if (absent.empty() || !needed) return "";
  const std::uint32_t who = first.absence == wire::Absence::kNeedsRoot ? first.root : absent.front();
  const bool here = !is_away(room, group, who);
  return first.operation + " needs every part of it, and " +
         (here ? rank_text(room, group.members[who]) + " cannot give its own: its site has lost a rank"
               : why_away(room, group, who)) +
         " [hub.part-missing]";
}

}  // namespace

std::uint64_t newest_stood(const HubWorld& room, GroupId group) {
  const auto found = room.stood.find(group);
  return found == room.stood.end() ? 0 : found->second.step;
}

// A rank is in: what it holds and has completed may end steps, and errors that were decided are news to it.
void CollectiveHub::State::catch_up(HubWorld& room, RankId rank) {
  for (auto& [id, group] : room.groups) {
    const auto member = member_of(group, rank);
    if (!member) continue;
    for (const auto& [number, step] : group.steps) {
      const bool news = step.decided && !step.decided->error.empty() && number > completed_by(room, group, *member);
      if (news) answer(room, group, number, *member);
    }
    catch_up(room, group);
  }
}

void CollectiveHub::State::catch_up(HubWorld& room, HubGroup& group) {
  for (const RankId member : group.members) {
    const HubRank& rank = room.ranks[member.value];
    const auto held = rank.held.find(group.id);
    if (!rank.in || held == rank.held.end()) continue;
    for (const auto& [number, ballot] : held->second) group.steps.try_emplace(number);
  }
  settle_all(room, group);
}

void CollectiveHub::State::recheck(HubWorld& room) {
  for (auto& [id, group] : room.groups) settle_all(room, group);
}

void CollectiveHub::State::settle_all(HubWorld& room, HubGroup& group) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, step] : group.steps) numbers.push_back(number);
  for (const std::uint64_t number : numbers) settle(room, group, number);
}

void CollectiveHub::State::settle(HubWorld& room, HubGroup& group, std::uint64_t number) {
  const auto found = group.steps.find(number);
  if (found == group.steps.end()) return;
  if (found->second.decided) return conclude(room, group, number);
  switch (phase_of(room, group, number)) {
    case StepPhase::kOpen: return try_to_decide(room, group, number);
    case StepPhase::kUnknown: return;
    case StepPhase::kHeld: return stand(room, group, number);
    case StepPhase::kStood: return pass_on(room, group, number);
  }
}

void CollectiveHub::State::try_to_decide(HubWorld& room, HubGroup& group, std::uint64_t number) {
  const HubStep& step = group.steps.at(number);
  if (step.parts.empty()) return;
  if (!group.given_up.empty()) return fail(room, group, number, group.given_up);
  const auto& [first_member, first] = *step.parts.begin();
  for (const auto& [member, part] : step.parts) {
    if (alike(first.contribute, part.contribute)) continue;
    return fail(room, group, number,
                differ(room, group.members[first_member], first.contribute, group.members[member], part.contribute));
  }
  Absent absent = absent_of(room, group, step);
  if (absent.waits) return time_out(room, group, number);
  std::string why = why_failed(room, group, step, absent.members);
  if (!why.empty()) return fail(room, group, number, std::move(why));
  decide(room, group, number, {group.id, number, {}, false, std::move(absent.members), ""});
}

void CollectiveHub::State::time_out(HubWorld& room, HubGroup& group, std::uint64_t number) {
  const HubPart* first = nullptr;
  std::vector<std::string> missing;
  const HubStep& step = group.steps.at(number);
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    const auto part = step.parts.find(i);
    if (part == step.parts.end()) {
      missing.push_back(rank_text(room, group.members[i]));
    } else if (now >= part->second.deadline && (first == nullptr || part->second.since < first->since)) {
      first = &part->second;
    }
  }
  if (first == nullptr) return;
  fail(room, group, number,
       call_text(first->contribute) + " was given up after " + in_seconds(now - first->since) +
           ", the group's time-out: " + names_text(missing, {}) + " did not come to it in time [hub.ranks-late]");
}

// What was late and could not be ended, since others may hold an outcome, ends when they have come.
void CollectiveHub::State::note_late(HubWorld& room) {
  const auto late = [&](const auto& part) { return now >= part.second.deadline; };
  for (auto& [id, group] : room.groups) {
    for (auto& [number, step] : group.steps) step.late = std::ranges::any_of(step.parts, late);
  }
}

void CollectiveHub::State::fail(HubWorld& room, HubGroup& group, std::uint64_t number, std::string error) {
  decide(room, group, number, {group.id, number, {}, false, {}, std::move(error)});
}

void CollectiveHub::State::decide(HubWorld& room, HubGroup& group, std::uint64_t number, wire::StepResult result) {
  HubStep& step = group.steps.at(number);
  result.ballot = room.epochs.ballot;
  result.stands = room.only_hub;
  const bool failed = !result.error.empty();
  step.decided = std::move(result);
  group.newest_decided = std::max(group.newest_decided, number);
  for (auto& [member, part] : step.parts) {
    if (!failed) continue;
    part.charge.set(part.charge.bytes() - part.payload.bytes);
    part.payload = {};
  }
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    // An error is also for those who have not come to the step: it does not stand without them.
    if (failed || step.parts.contains(i)) answer(room, group, number, i);
  }
  conclude(room, group, number);
}

void CollectiveHub::State::answer(HubWorld& room, HubGroup& group, std::uint64_t number, std::uint32_t member) {
  const HubRank& rank = room.ranks[group.members[member].value];
  if (!rank.in || is_away(room, group, member)) return;
  const HubStep& step = group.steps.at(number);
  const wire::StepResult& result = *step.decided;
  const auto mine = step.parts.find(member);
  if (result.error.empty() && mine != step.parts.end() && mine->second.contribute.wants) {
    for (const auto& [from, part] : step.parts) {
      if (from == member || std::ranges::binary_search(result.absent, from)) continue;
      Payload payload = part_for(part, member);
      if (payload.bytes > 0) send(rank.link, wire::Part{group.id, number, from}, std::move(payload));
    }
  }
  send(rank.link, result);
}

// Of a step that was decided here: whether all hold it.
void CollectiveHub::State::conclude(HubWorld& room, HubGroup& group, std::uint64_t number) {
  const wire::Ballot ballot = room.epochs.ballot;
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    if (is_away(room, group, i)) continue;
    const HubRank& rank = room.ranks[group.members[i].value];
    const bool holds =
        room.only_hub ? completed_by(room, group, i) >= number : rank.in && held_by(rank, group.id, number) == ballot;
    if (holds) continue;
    while (room.only_hub && group.steps.size() > kMaxSteps) group.steps.erase(group.steps.begin());
    return;
  }
  stand(room, group, number);
}

void CollectiveHub::State::stand(HubWorld& room, HubGroup& group, std::uint64_t number) {
  const auto [place, fresh] = room.stood.try_emplace(group.id);
  if (fresh) place->second.charge = HubCharge(group.opener, kEntryCost);
  place->second.step = std::max(place->second.step, number);
  pass_on(room, group, number);
}

// It stands: who holds it may give it to its caller.
void CollectiveHub::State::pass_on(HubWorld& room, HubGroup& group, std::uint64_t number) {
  const HubStep step = std::move(group.steps.at(number));
  group.steps.erase(number);
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    HubRank& rank = room.ranks[group.members[i].value];
    if (!rank.in || is_away(room, group, i) || completed_by(room, group, i) >= number) continue;
    if (held_by(rank, group.id, number)) {
      rank.held[group.id].erase(number);
      rank.completed[group.id] = number;
      send(rank.link, wire::Stands{group.id, number});
    } else if (step.parts.contains(i)) {
      // Only where the only hub has forgotten it: it has died, or this rank came too late.
      send(rank.link,
           wire::StepResult{group.id,
                            number,
                            room.epochs.ballot,
                            true,
                            {},
                            "another rank has completed this step of the group with an earlier coordinator, or "
                            "long ago; this rank fell too far behind [hub.too-late]"});
    }
  }
}

}  // namespace collab::protocol
