// What the ranks of a group do together, step by step.
#include <algorithm>
#include <utility>

#include "core/protocol/meeting_state.h"
#include "core/protocol/words.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxGroups = 65536;  // of a world, pairs included
constexpr std::size_t kMaxSteps = 64;      // failed ones that a slow member has not come to

[[nodiscard]] std::string call_in_words(const wire::Bring& bring) {
  return bring.shape.empty() ? bring.operation : bring.operation + " " + bring.shape;
}

[[nodiscard]] bool alike(const wire::Bring& a, const wire::Bring& b) {
  return a.operation == b.operation && a.absence == b.absence && a.root == b.root;
}

[[nodiscard]] std::string differ(const MeetingRoom& room, RankId a, const wire::Bring& in_a, RankId b,
                                 const wire::Bring& in_b) {
  return "the ranks are not in the same call: " + rank_in_words(room, a) + " is in " + call_in_words(in_a) + ", " +
         rank_in_words(room, b) + " is in " + call_in_words(in_b);
}

[[nodiscard]] std::uint64_t newest_completed(const MeetingRoom& room, const MeetingGroup& group) {
  std::uint64_t newest = 0;
  for (const auto& [member, completed] : group.completed) {
    if (!room.ranks[group.members[member].value].away()) newest = std::max(newest, completed);
  }
  return newest;
}

[[nodiscard]] bool is_away(const MeetingRoom& room, const MeetingGroup& group, std::uint32_t member) {
  return room.ranks[group.members[member].value].away() || group.disbanded.contains(member);
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

}  // namespace

CallsUnderWay Meeting::calls_under_way() const {
  CallsUnderWay calls;
  for (const auto& [world, room] : state_->rooms) {
    const auto site_of = [&room = room](RankId rank) { return room.sites[room.site_of[rank.value]]; };
    for (const auto& [id, group] : room.groups) {
      for (const auto& [number, step] : group.steps) {
        if (step.complete) continue;
        std::set<std::string> awaits;
        for (std::uint32_t i = 0; i < group.members.size(); ++i) {
          if (!step.parts.contains(i) && !is_away(room, group, i)) awaits.insert(site_of(group.members[i]));
        }
        for (const auto& [member, part] : step.parts) {
          if (is_away(room, group, member)) continue;
          InCall& call = calls.sites[site_of(group.members[member])];
          call.call = call_in_words(part.bring);
          call.awaits.insert(awaits.begin(), awaits.end());
          call.stands_still = call.stands_still || part.bring.operation.starts_with(kStandsStill);
        }
      }
    }
  }
  return calls;
}

void Meeting::State::assemble(MeetingRoom& room, RankId rank, const wire::Assemble& message) {
  MeetingGroup* group = group_of(room, message.group);
  if (group == nullptr) {
    const bool known = std::ranges::all_of(message.members, [&](RankId m) { return m.value < room.ranks.size(); });
    if (!known || room.groups.size() >= kMaxGroups) {
      return refuse(room.ranks[rank.value].link,
                    known ? "there are " + std::to_string(kMaxGroups) + " groups already; destroy some"
                          : std::string("a group names a rank that is not of this world"));
    }
    group = &room.groups[message.group];
    *group = {message.group, message.members, message.parent, message.tag, {}, {}, {}, {}};
  }
  const auto member = member_of(*group, rank);
  if (!member || group->members != message.members) {
    return refuse(room.ranks[rank.value].link, "a group of " + std::to_string(group->members.size()) +
                                                   " ranks has other members at " + rank_in_words(room, rank));
  }
  group->disbanded.erase(*member);
  group->completed[*member] = message.completed;
  for (auto& [number, step] : group->steps) {
    step.asked.erase(*member);
    if (number <= message.completed && !step.complete) recall(room, *group, step);
  }
  forget_taken(room, *group);
}

void Meeting::State::disband(MeetingRoom& room, RankId rank, const wire::Disband& message) {
  MeetingGroup* group = group_of(room, message.group);
  const auto member = group == nullptr ? std::nullopt : member_of(*group, rank);
  if (!member) return;
  group->disbanded.insert(*member);
  recheck(room);
  const auto everybody = static_cast<std::uint32_t>(group->members.size());
  for (std::uint32_t i = 0; i < everybody; ++i) {
    if (!is_away(room, *group, i) && group->completed.contains(i)) return;
  }
  room.groups.erase(message.group);
}

void Meeting::State::bring(MeetingRoom& room, RankId rank, const wire::Bring& message, const BufferPtr& payload) {
  const LinkId link = room.ranks[rank.value].link;
  MeetingGroup* group = group_of(room, message.group);
  const auto member = group == nullptr ? std::nullopt : member_of(*group, rank);
  if (!member || !group->completed.contains(*member)) return refuse(link, "a part for a group that was not opened");
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : message.splits) total += bytes;
  const Payload part = whole(payload);
  if (!message.splits.empty() && (message.splits.size() != group->members.size() || total != part.bytes)) {
    return refuse(link, message.operation + " was split for " + std::to_string(message.splits.size()) +
                            " members into " + std::to_string(total) + " bytes, the group has " +
                            std::to_string(group->members.size()) + " and came " + std::to_string(part.bytes));
  }
  std::uint64_t& completed = group->completed[*member];
  const bool recall_answer = message.step <= completed;
  if (!recall_answer && message.step != completed + 1) {
    return refuse(link, "step " + std::to_string(message.step) + " follows " + std::to_string(completed));
  }
  if (recall_answer && !group->steps.contains(message.step)) return;  // nobody needs it any more
  MeetingStep& step = group->steps[message.step];
  step.number = message.step;
  if (step.complete) {
    if (!recall_answer) {
      step.parts.try_emplace(*member, MeetingPart{message, {}, now, kNever});
      answer(room, *group, step, *member);
    }
    return;
  }
  const bool limited = message.timeout_ms != 0 && !recall_answer;
  step.parts[*member] = {message, part, now,
                         limited ? later(now, std::chrono::milliseconds(message.timeout_ms)) : kNever};
  if (!group->given_up.empty()) return fail(room, *group, step, group->given_up);
  if (!recall_answer) tell_seeker(room, *group);
  if (message.step <= newest_completed(room, *group)) recall(room, *group, step);
  if (!recall_answer) compare_with_twin(room, *group, step, *member);
  settle(room, *group, step);
  if (!room.minority.empty()) recheck(room);
}

// The same call in the twin group is another one there: neither step would ever be whole.
void Meeting::State::compare_with_twin(MeetingRoom& room, MeetingGroup& group, MeetingStep& step,
                                       std::uint32_t member) {
  const wire::Bring& mine = step.parts.at(member).bring;
  MeetingGroup* twin = mine.call == 0 ? nullptr : group_of(room, GroupId(group.id.value ^ 1));
  if (twin == nullptr) return;
  for (auto& [number, other] : twin->steps) {
    const auto theirs =
        std::ranges::find_if(other.parts, [&](const auto& part) { return part.second.bring.call == mine.call; });
    if (other.complete || theirs == other.parts.end()) continue;
    const std::string why =
        differ(room, twin->members[theirs->first], theirs->second.bring, group.members[member], mine);
    give_up(room, *twin, why);
    return give_up(room, group, why);
  }
}

// From here on its members count their steps differently.
void Meeting::State::give_up(MeetingRoom& room, MeetingGroup& group, const std::string& why) {
  group.given_up = why;
  for (auto& [number, step] : group.steps) {
    if (!step.complete) fail(room, group, step, why);
  }
}

void Meeting::State::recall(MeetingRoom& room, MeetingGroup& group, MeetingStep& step) {
  for (const auto& [member, completed] : group.completed) {
    if (completed < step.number || is_away(room, group, member) || step.asked.contains(member)) continue;
    step.awaited.insert(member);
    const LinkId link = room.ranks[group.members[member].value].link;
    if (link.value == 0) continue;  // it will assemble anew
    step.asked.insert(member);
    send(link, wire::Recall{group.id, step.number});
  }
}

void Meeting::State::piece(MeetingRoom& room, RankId rank, const wire::Piece& message, const BufferPtr& payload) {
  MeetingGroup* group = group_of(room, message.group);
  const auto member = group == nullptr ? std::nullopt : member_of(*group, rank);
  const auto step = member ? group->steps.find(message.step) : decltype(group->steps.end()){};
  if (!member || step == group->steps.end() || !step->second.awaited.contains(*member)) return;
  if (message.from < group->members.size()) step->second.loose[message.from] = whole(payload);
}

void Meeting::State::recalled(MeetingRoom& room, RankId rank, const wire::Outcome& message) {
  for (const RankId gone : message.gone) {
    if (gone.value < room.ranks.size() && gone != rank) mark_gone(room, gone, "an earlier hub has left it out");
  }
  MeetingGroup* group = group_of(room, message.group);
  const auto member = group == nullptr ? std::nullopt : member_of(*group, rank);
  const auto found = member ? group->steps.find(message.step) : decltype(group->steps.end()){};
  if (member && found != group->steps.end() && found->second.awaited.erase(*member) > 0) {
    MeetingStep& step = found->second;
    // The one that holds it as it was speaks before one that has forgotten it.
    if (!step.complete && (!step.decided || !step.decided->error.empty())) step.decided = message;
  }
  recheck(room);
}

void Meeting::State::taken(MeetingRoom& room, RankId rank, const wire::Taken& message) {
  MeetingGroup* group = group_of(room, message.group);
  const auto member = group == nullptr ? std::nullopt : member_of(*group, rank);
  if (!member) return;
  std::uint64_t& completed = group->completed[*member];
  completed = std::max(completed, message.step);
  forget_taken(room, *group);
}

void Meeting::State::forget_taken(MeetingRoom& room, MeetingGroup& group) {
  std::uint64_t everywhere = UINT64_MAX;
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    if (is_away(room, group, i)) continue;
    const auto completed = group.completed.find(i);
    everywhere = std::min(everywhere, completed == group.completed.end() ? 0 : completed->second);
  }
  std::erase_if(group.steps, [&](const auto& entry) { return entry.first <= everywhere; });
  while (group.steps.size() > kMaxSteps) group.steps.erase(group.steps.begin());
}

// Answers the step when everything it takes is here.
void Meeting::State::settle(MeetingRoom& room, MeetingGroup& group, MeetingStep& step) {
  if (step.complete || step.parts.empty()) return;
  std::erase_if(step.awaited, [&](std::uint32_t member) { return is_away(room, group, member); });
  if (!step.awaited.empty()) return;
  if (step.decided && !step.decided->error.empty()) return decide(room, group, step, *step.decided);
  const wire::Bring& first = step.parts.begin()->second.bring;
  for (const auto& [member, part] : step.parts) {
    if (alike(first, part.bring)) continue;
    return fail(room, group, step,
                differ(room, group.members[step.parts.begin()->first], first, group.members[member], part.bring));
  }
  wire::Outcome outcome{group.id, step.number, {}, {}, ""};
  for (std::uint32_t i = 0; i < group.members.size(); ++i) {
    const auto part = step.parts.find(i);
    const bool left_out = step.decided && std::ranges::binary_search(step.decided->absent, i);
    if (part != step.parts.end() && !part->second.bring.absent && !left_out) continue;
    if (part == step.parts.end() && !left_out && !is_away(room, group, i)) return;  // it is still to come
    if (part == step.parts.end() && step.decided && !left_out && first.absence == wire::Absence::kGoesOn &&
        step.loose.contains(i)) {
      continue;  // gone since, but its part is here
    }
    outcome.absent.push_back(i);
  }
  if (!outcome.absent.empty()) {
    const bool root_away = std::ranges::binary_search(outcome.absent, first.root);
    const bool fails =
        first.absence == wire::Absence::kFails || (first.absence == wire::Absence::kNeedsRoot && root_away);
    const std::uint32_t who = first.absence == wire::Absence::kNeedsRoot ? first.root : outcome.absent.front();
    if (fails) {
      const bool here = !is_away(room, group, who);
      return fail(room, group, step,
                  first.operation + " needs every part of it, and " +
                      (here ? rank_in_words(room, group.members[who]) + " cannot give its own: its site has lost a rank"
                            : why_away(room, group, who)));
    }
  }
  decide(room, group, step, std::move(outcome));
}

void Meeting::State::fail(MeetingRoom& room, MeetingGroup& group, MeetingStep& step, std::string error) {
  decide(room, group, step, {group.id, step.number, {}, {}, std::move(error)});
}

void Meeting::State::decide(MeetingRoom& room, MeetingGroup& group, MeetingStep& step, wire::Outcome outcome) {
  outcome.gone.clear();
  for (std::uint32_t i = 0; i < room.ranks.size(); ++i) {
    if (!room.ranks[i].gone.empty()) outcome.gone.emplace_back(i);
  }
  step.decided = std::move(outcome);
  step.complete = true;
  if (!step.decided->error.empty()) {
    step.loose.clear();
    for (auto& [member, part] : step.parts) part.payload = {};
  }
  std::vector<std::uint32_t> waiting;
  for (const auto& [member, part] : step.parts) {
    if (group.completed[member] < step.number) waiting.push_back(member);
  }
  for (const std::uint32_t member : waiting) answer(room, group, step, member);
}

void Meeting::State::answer(MeetingRoom& room, MeetingGroup& group, MeetingStep& step, std::uint32_t member) {
  const LinkId link = room.ranks[group.members[member].value].link;
  const wire::Outcome& outcome = *step.decided;
  const auto mine = step.parts.find(member);
  if (outcome.error.empty() && mine != step.parts.end() && mine->second.bring.wants) {
    for (std::uint32_t from = 0; from < group.members.size(); ++from) {
      if (from == member || std::ranges::binary_search(outcome.absent, from)) continue;
      const auto part = step.parts.find(from);
      Payload payload = part != step.parts.end() ? part_for(part->second, member) : step.loose[from];
      if (payload.bytes > 0) send(link, wire::Piece{group.id, step.number, from}, std::move(payload));
    }
  }
  send(link, outcome);
}

// Somebody is gone, or has answered for an earlier hub.
void Meeting::State::recheck(MeetingRoom& room) {
  for (auto& [id, group] : room.groups) {
    std::vector<std::uint64_t> open;
    for (const auto& [number, step] : group.steps) {
      if (!step.complete) open.push_back(number);
    }
    for (const std::uint64_t number : open) {
      MeetingStep& step = group.steps.at(number);
      if (room.minority.empty()) {
        settle(room, group, step);
        continue;
      }
      for (std::uint32_t i = 0; i < group.members.size(); ++i) {
        const MeetingRank& rank = room.ranks[group.members[i].value];
        const bool silent = rank.entered ? now - rank.heard >= config.link_grace : now >= room.unseen;
        if (step.parts.contains(i) || !silent) continue;
        fail(room, group, step,
             rank_in_words(room, group.members[i]) + " has not been heard of for " + in_seconds(config.link_grace) +
                 " (COLLAB_LINK_GRACE), and " + room.minority);
        break;
      }
    }
    forget_taken(room, group);
  }
}

void Meeting::State::time_out(MeetingRoom& room) {
  for (auto& [id, group] : room.groups) {
    std::vector<std::uint64_t> late;
    for (const auto& [number, step] : group.steps) {
      const bool passed =
          std::ranges::any_of(step.parts, [&](const auto& part) { return now >= part.second.deadline; });
      if (!step.complete && passed) late.push_back(number);
    }
    for (const std::uint64_t number : late) {
      MeetingStep& step = group.steps.at(number);
      const MeetingPart* first = nullptr;
      for (const auto& [member, part] : step.parts) {
        if (now >= part.deadline && (first == nullptr || part.since < first->since)) first = &part;
      }
      std::vector<std::string> missing;
      for (std::uint32_t i = 0; i < group.members.size(); ++i) {
        if (!step.parts.contains(i)) missing.push_back(rank_in_words(room, group.members[i]));
      }
      fail(room, group, step,
           call_in_words(first->bring) + " was given up after " + in_seconds(now - first->since) +
               ", the group's time-out: " + join_words(missing) + " did not come to it in time");
    }
  }
}

// ---- sends to whoever asks --------------------------------------------------------------------------

void Meeting::State::seek(MeetingRoom& room, RankId rank, const wire::Seek& message) {
  room.seeks.insert({rank, {message.group, message.tag}});
  for (const auto& [id, group] : room.groups) {
    if (group.parent == message.group && group.tag == message.tag && group.members.back() == rank) {
      tell_seeker(room, group);
    }
  }
}

void Meeting::State::tell_seeker(MeetingRoom& room, const MeetingGroup& pair) {
  if (pair.parent.value == 0) return;
  const auto seeker = room.seeks.find({pair.members.back(), {pair.parent, pair.tag}});
  const MeetingGroup* parent = group_of(room, pair.parent);
  if (seeker == room.seeks.end() || parent == nullptr) return;
  const bool waits = std::ranges::any_of(
      pair.steps, [](const auto& step) { return !step.second.complete && step.second.parts.contains(0); });
  const auto from = member_of(*parent, pair.members.front());
  if (!waits || !from) return;
  send(room.ranks[pair.members.back().value].link, wire::Found{pair.parent, pair.tag, *from});
  room.seeks.erase(seeker);
}

}  // namespace collab::protocol
