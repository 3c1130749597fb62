// How a step ends: decided by the hub, held by its members, standing once all that are not gone hold it.
#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_state.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxSteps = 64;  // failed ones that a member has not taken, of the only hub

[[nodiscard]] bool alike(const wire::Bring& a, const wire::Bring& b) {
  return a.operation == b.operation && a.absence == b.absence && a.root == b.root;
}

[[nodiscard]] std::string why_away(const MeetingRoom& room, const MeetingGroup& group, std::uint32_t member) {
  const MeetingRank& rank = room.ranks[group.members[member].value];
  const std::string who = rank_in_words(room, group.members[member]);
  if (!rank.gone.empty()) return who + " is gone: " + rank.gone;
  return who + (rank.left ? " has left" : " has closed this group");
}

// The part of `bring` that is for one member.
[[nodiscard]] Payload part_for(const MeetingPart& part, std::uint32_t member) {
  if (part.bring.splits.empty()) return part.payload;
  Payload payload = part.payload;
  for (std::uint32_t before = 0; before < member; ++before) payload.offset += part.bring.splits[before];
  payload.bytes = part.bring.splits[member];
  return payload;
}

[[nodiscard]] std::optional<wire::Ballot> held_by(const MeetingRank& rank, GroupId group, std::uint64_t number) {
  const auto steps = rank.held.find(group);
  if (steps == rank.held.end()) return std::nullopt;
  const auto held = steps->second.find(number);
  return held == steps->second.end() ? std::nullopt : std::optional(held->second);
}

// Of a step that this hub has not decided. Who is here has promised our ballot: what it does not hold now it will hold
// under no older one, and without it nothing stands.
[[nodiscard]] Standing standing_of(const MeetingRoom& room, const MeetingGroup& group, std::uint64_t number) {
  if (number <= newest_stood(room, group.id)) return Standing::kStood;
  std::optional<wire::Ballot> under;
  bool all_here = true;
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    if (is_away(room, group, i)) continue;
    const MeetingRank& rank = room.ranks[group.members[i].value];
    if (!rank.in) {
      all_here = false;
      continue;
    }
    const std::optional<wire::Ballot> held = held_by(rank, group.id, number);
    if (!held || (under && *under != *held)) return Standing::kOpen;
    under = held;
  }
  return all_here && under ? Standing::kHeld : Standing::kUnknown;
}

// Without whom a step goes on, unless somebody is still to come.
struct Absent {
  std::vector<std::uint32_t> members;
  bool waits = false;
};

[[nodiscard]] Absent absent_of(const MeetingRoom& room, const MeetingGroup& group, const MeetingStep& step) {
  Absent absent;
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    const auto part = step.parts.find(i);
    if (part != step.parts.end() && !part->second.bring.absent) continue;
    if (part == step.parts.end() && !is_away(room, group, i)) return {{}, true};
    absent.members.push_back(i);
  }
  return absent;
}

// Why a step fails without these; empty: it goes on.
[[nodiscard]] std::string why_failed(const MeetingRoom& room, const MeetingGroup& group, const MeetingStep& step,
                                     const std::vector<std::uint32_t>& absent) {
  const wire::Bring& first = step.parts.begin()->second.bring;
  const bool root_away = std::ranges::binary_search(absent, first.root);
  const bool needed =
      first.absence == wire::Absence::kFails || (first.absence == wire::Absence::kNeedsRoot && root_away);
  if (absent.empty() || !needed) return "";
  const std::uint32_t who = first.absence == wire::Absence::kNeedsRoot ? first.root : absent.front();
  const bool here = !is_away(room, group, who);
  return first.operation + " needs every part of it, and " +
         (here ? rank_in_words(room, group.members[who]) + " cannot give its own: its site has lost a rank"
               : why_away(room, group, who));
}

}  // namespace

std::uint64_t newest_stood(const MeetingRoom& room, GroupId group) {
  const auto found = room.stood.find(group);
  return found == room.stood.end() ? 0 : found->second.step;
}

// A rank is in: what it holds and has completed may end steps, and errors that were decided are news to it.
void Meeting::State::catch_up(MeetingRoom& room, RankId rank) {
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

void Meeting::State::catch_up(MeetingRoom& room, MeetingGroup& group) {
  for (const RankId member : group.members) {
    const MeetingRank& rank = room.ranks[member.value];
    const auto held = rank.held.find(group.id);
    if (!rank.in || held == rank.held.end()) continue;
    for (const auto& [number, ballot] : held->second) group.steps.try_emplace(number);
  }
  settle_all(room, group);
}

void Meeting::State::recheck(MeetingRoom& room) {
  for (auto& [id, group] : room.groups) settle_all(room, group);
}

void Meeting::State::settle_all(MeetingRoom& room, MeetingGroup& group) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, step] : group.steps) numbers.push_back(number);
  for (const std::uint64_t number : numbers) settle(room, group, number);
}

void Meeting::State::settle(MeetingRoom& room, MeetingGroup& group, std::uint64_t number) {
  const auto found = group.steps.find(number);
  if (found == group.steps.end()) return;
  if (found->second.decided) return conclude(room, group, number);
  switch (standing_of(room, group, number)) {
    case Standing::kOpen: return try_to_decide(room, group, number);
    case Standing::kUnknown: return;
    case Standing::kHeld: return stand(room, group, number);
    case Standing::kStood: return pass_on(room, group, number);
  }
}

void Meeting::State::try_to_decide(MeetingRoom& room, MeetingGroup& group, std::uint64_t number) {
  const MeetingStep& step = group.steps.at(number);
  if (step.parts.empty()) return;
  if (!group.given_up.empty()) return fail(room, group, number, group.given_up);
  const auto& [first_member, first] = *step.parts.begin();
  for (const auto& [member, part] : step.parts) {
    if (alike(first.bring, part.bring)) continue;
    return fail(room, group, number,
                differ(room, group.members[first_member], first.bring, group.members[member], part.bring));
  }
  Absent absent = absent_of(room, group, step);
  if (absent.waits) return time_out(room, group, number);
  std::string why = why_failed(room, group, step, absent.members);
  if (!why.empty()) return fail(room, group, number, std::move(why));
  decide(room, group, number, {group.id, number, {}, false, std::move(absent.members), ""});
}

void Meeting::State::time_out(MeetingRoom& room, MeetingGroup& group, std::uint64_t number) {
  const MeetingPart* first = nullptr;
  std::vector<std::string> missing;
  const MeetingStep& step = group.steps.at(number);
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    const auto part = step.parts.find(i);
    if (part == step.parts.end()) {
      missing.push_back(rank_in_words(room, group.members[i]));
    } else if (now >= part->second.deadline && (first == nullptr || part->second.since < first->since)) {
      first = &part->second;
    }
  }
  if (first == nullptr) return;
  fail(room, group, number,
       call_in_words(first->bring) + " was given up after " + in_seconds(now - first->since) +
           ", the group's time-out: " + names_in_words(missing, {}) + " did not come to it in time");
}

// What was late and could not be ended, since others may hold an outcome, ends when they have come.
void Meeting::State::note_late(MeetingRoom& room) {
  const auto late = [&](const auto& part) { return now >= part.second.deadline; };
  for (auto& [id, group] : room.groups) {
    for (auto& [number, step] : group.steps) step.late = std::ranges::any_of(step.parts, late);
  }
}

void Meeting::State::fail(MeetingRoom& room, MeetingGroup& group, std::uint64_t number, std::string error) {
  decide(room, group, number, {group.id, number, {}, false, {}, std::move(error)});
}

void Meeting::State::decide(MeetingRoom& room, MeetingGroup& group, std::uint64_t number, wire::Outcome outcome) {
  MeetingStep& step = group.steps.at(number);
  outcome.ballot = room.epochs.ballot;
  outcome.stands = room.only_hub;
  const bool failed = !outcome.error.empty();
  step.decided = std::move(outcome);
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

void Meeting::State::answer(MeetingRoom& room, MeetingGroup& group, std::uint64_t number, std::uint32_t member) {
  const MeetingRank& rank = room.ranks[group.members[member].value];
  if (!rank.in || is_away(room, group, member)) return;
  const MeetingStep& step = group.steps.at(number);
  const wire::Outcome& outcome = *step.decided;
  const auto mine = step.parts.find(member);
  if (outcome.error.empty() && mine != step.parts.end() && mine->second.bring.wants) {
    for (const auto& [from, part] : step.parts) {
      if (from == member || std::ranges::binary_search(outcome.absent, from)) continue;
      Payload payload = part_for(part, member);
      if (payload.bytes > 0) send(rank.link, wire::Piece{group.id, number, from}, std::move(payload));
    }
  }
  send(rank.link, outcome);
}

// Of a step that was decided here: whether all hold it.
void Meeting::State::conclude(MeetingRoom& room, MeetingGroup& group, std::uint64_t number) {
  const wire::Ballot ballot = room.epochs.ballot;
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    if (is_away(room, group, i)) continue;
    const MeetingRank& rank = room.ranks[group.members[i].value];
    const bool holds =
        room.only_hub ? completed_by(room, group, i) >= number : rank.in && held_by(rank, group.id, number) == ballot;
    if (holds) continue;
    while (room.only_hub && group.steps.size() > kMaxSteps) group.steps.erase(group.steps.begin());
    return;
  }
  stand(room, group, number);
}

void Meeting::State::stand(MeetingRoom& room, MeetingGroup& group, std::uint64_t number) {
  const auto [place, fresh] = room.stood.try_emplace(group.id);
  if (fresh) place->second.charge = MeetingCharge(group.opener, kEntryCost);
  place->second.step = std::max(place->second.step, number);
  pass_on(room, group, number);
}

// It stands: who holds it may give it to its caller.
void Meeting::State::pass_on(MeetingRoom& room, MeetingGroup& group, std::uint64_t number) {
  const MeetingStep step = std::move(group.steps.at(number));
  group.steps.erase(number);
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    MeetingRank& rank = room.ranks[group.members[i].value];
    if (!rank.in || is_away(room, group, i) || completed_by(room, group, i) >= number) continue;
    if (held_by(rank, group.id, number)) {
      rank.held[group.id].erase(number);
      rank.completed[group.id] = number;
      send(rank.link, wire::Stands{group.id, number});
    } else if (step.parts.contains(i)) {
      // Only where the only hub has forgotten it: it has died, or this rank came too late.
      send(rank.link, wire::Outcome{group.id,
                                    number,
                                    room.epochs.ballot,
                                    true,
                                    {},
                                    "another rank has completed this step of the group with an earlier coordinator, or "
                                    "long ago; this rank fell too far behind"});
    }
  }
}

}  // namespace collab::protocol
