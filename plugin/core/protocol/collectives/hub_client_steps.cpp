// A rank's groups: its part of each step, and the outcomes it holds until they stand.
#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_client_state.h"
#include "core/protocol/formatting.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxKept = 64;         // outcomes of a group, all but one errors it has not come to
constexpr std::size_t kMaxKeptSteps = 4096;  // of all groups
constexpr std::size_t kMaxClosed = 4096;     // groups that are told to a later hub

}  // namespace

// What is under way here, for a hub that may know nothing of it.
void MeetingClient::State::remember(wire::Enter& enter) const {
  for (const auto& [id, group] : groups) {
    if (!group.broken.ok()) {
      enter.closed.push_back(id);
      continue;
    }
    std::uint64_t completed = group.completed;
    for (const auto& [step, kept] : group.kept) {
      if (kept.stands) completed = std::max(completed, step);
    }
    if (completed > 0) enter.completed.push_back({id, completed});
    for (const auto& [step, kept] : group.kept) {
      if (step > completed) enter.held.push_back({id, step, kept.outcome.ballot});
    }
  }
  enter.closed.insert(enter.closed.end(), closed.begin(), closed.end());
}

// The hub leads, and knows what this rank remembers.
void MeetingClient::State::say_everything() {
  for (const GroupId id : std::exchange(untold, {})) send(wire::Disband{id});
  for (auto& [id, group] : groups) {
    if (!group.opened() || !group.broken.ok()) continue;
    send(wire::Assemble{group.open.group, group.open.members, group.open.parent, group.open.tag});
    if (!group.pending) continue;
    group.pending->pieces.clear();
    bring(group);
  }
  for (const auto& [id, seeking] : seeks) send(wire::Seek{seeking.seek.group, seeking.seek.tag});
}

void MeetingClient::State::open(const OpenGroup& event) {
  Group& group = groups[event.group];
  if (group.opened()) return;
  group.open = event;
  std::erase(closed, event.group);
  std::erase(untold, event.group);
  if (is_in() && group.broken.ok()) send(wire::Assemble{event.group, event.members, event.parent, event.tag});
}

void MeetingClient::State::close(GroupId id) {
  const auto found_group = groups.find(id);
  if (found_group == groups.end()) return;
  break_group(id, found_group->second, cancelled("the group was closed"));
  groups.erase(found_group);
  closed.push_back(id);
  if (closed.size() > kMaxClosed) closed.pop_front();
  for (auto entry = seeks.begin(); entry != seeks.end();) {
    if (entry->second.seek.group != id) {
      ++entry;
      continue;
    }
    actions.emplace_back(SenderFound{entry->first, cancelled("the group was closed"), 0});
    entry = seeks.erase(entry);
  }
}

// The others need not wait for what will not come.
void MeetingClient::State::break_group(GroupId id, Group& group, Status why) {
  const bool told = !std::exchange(group.broken, std::move(why)).ok();
  fail_group(group, group.broken);
  kept_steps -= group.kept.size();
  group.kept.clear();
  if (told) return;
  if (is_in()) return send(wire::Disband{id});
  untold.push_back(id);
}

void MeetingClient::State::fail_everything(const Status& why) {
  for (auto& [id, group] : groups) fail_group(group, why);
  for (const auto& [id, seeking] : seeks) actions.emplace_back(SenderFound{id, why, 0});
  seeks.clear();
}

void MeetingClient::State::fail_group(Group& group, const Status& why) {
  if (group.pending) actions.emplace_back(MeetingExchanged{group.pending->request.id, why, {}, {}});
  for (const MeetingRequest& request : group.queue) actions.emplace_back(MeetingExchanged{request.id, why, {}, {}});
  group.pending.reset();
  group.queue.clear();
}

void MeetingClient::State::exchange(const MeetingRequest& request) {
  const auto found_group = groups.find(request.group);
  Status why = broken;
  if (why.ok() && phase == Phase::kLeft) why = cancelled("this rank has left its world's collectives");
  if (why.ok() && (found_group == groups.end() || !found_group->second.opened())) {
    why = invalid_argument("this group has been closed");
  }
  if (why.ok()) why = found_group->second.broken;
  if (!why.ok()) {
    actions.emplace_back(MeetingExchanged{request.id, why, {}, {}});
    return;
  }
  found_group->second.queue.push_back(request);
  begin_next(found_group->second);
}

void MeetingClient::State::begin_next(Group& group) {
  while (!group.pending && !group.queue.empty()) {
    group.pending = Pending{std::move(group.queue.front()), group.completed + 1, now, kNever, {}};
    group.queue.pop_front();
    const Duration timeout = group.pending->request.timeout;
    // The hub gives up first, and knows for whom it waited; a successor needs time to be found, and to find who is
    // gone.
    const Duration grace = (config.hubs.size() > 1 ? 3 : 1) * config.link_grace;
    if (timeout.count() > 0) group.pending->deadline = later(now, timeout + grace + config.heartbeat);
    const auto kept = group.kept.find(group.pending->step);
    if (kept != group.kept.end() && kept->second.stands) {
      give_out(group);
    } else if (is_in()) {
      bring(group);
    }
  }
}

void MeetingClient::State::bring(const Group& group) {
  const MeetingRequest& r = group.pending->request;
  // To a later hub: what is left, so that no wait is much longer than the time-out.
  const Duration left = r.timeout - std::min(r.timeout, now - group.pending->since);
  const Duration timeout = std::min(r.timeout, std::max(left, config.link_grace));
  const auto ms = std::min<std::int64_t>(timeout.count() / 1000, wire::kMaxIntervalMs);
  wire::Bring message{
      r.group, group.pending->step, r.call, r.operation, r.shape, r.absence, r.root, r.wants, r.absent, 0, r.splits};
  message.timeout_ms = static_cast<std::uint32_t>(ms);
  send(std::move(message), r.payload);
}

void MeetingClient::State::piece(const wire::Piece& message, const BufferPtr& payload) {
  const auto found_group = groups.find(message.group);
  if (found_group == groups.end() || !found_group->second.pending) return;
  Group& group = found_group->second;
  if (group.pending->step != message.step || message.from >= group.open.members.size()) return;
  group.pending->pieces[message.from] = whole(payload);
}

void MeetingClient::State::outcome(const wire::Outcome& message) {
  if (!is_in() || message.ballot != promised) return;
  if (std::ranges::find(closed, message.group) != closed.end()) return;
  const auto known = groups.find(message.group);
  const bool pending = known != groups.end() && known->second.pending && known->second.pending->step == message.step;
  if (!pending && message.error.empty()) return;  // a part in it was not asked for
  Group& group = groups[message.group];
  if (!group.broken.ok() || message.step <= group.completed) return;
  const auto kept = group.kept.find(message.step);
  if (kept == group.kept.end() || !kept->second.stands) keep(group, message);
  if (!group.broken.ok()) return;
  send(wire::Taken{message.group, message.step, message.ballot});
  if (message.stands) stands(message.group, message.step);
}

void MeetingClient::State::keep(Group& group, const wire::Outcome& message) {
  const auto [place, fresh] = group.kept.try_emplace(message.step);
  if (fresh) ++kept_steps;
  if (fresh && (group.kept.size() > kMaxKept || kept_steps > kMaxKeptSteps)) {
    return break_group(message.group, group,
                       unavailable("this rank fell too far behind: " + std::to_string(group.kept.size()) +
                                   " steps of this group have failed without it, the last one so: " + message.error));
  }
  Kept& kept = place->second;
  kept = {message, {}, false};
  if (group.pending && group.pending->step == message.step) kept.pieces = std::exchange(group.pending->pieces, {});
  for (const std::uint32_t member : message.absent) kept.pieces.erase(member);
}

void MeetingClient::State::stands(GroupId id, std::uint64_t step) {
  const auto found_group = groups.find(id);
  if (found_group == groups.end()) return;
  Group& group = found_group->second;
  const auto kept = group.kept.find(step);
  if (kept == group.kept.end()) return;
  kept->second.stands = true;
  if (!group.pending || group.pending->step != step) return;
  give_out(group);
  begin_next(group);
}

// The pending step's outcome stands.
void MeetingClient::State::give_out(Group& group) {
  const auto place = group.kept.find(group.pending->step);
  const Kept kept = std::move(place->second);
  group.kept.erase(place);
  --kept_steps;
  MeetingExchanged done{group.pending->request.id, {}, {}, kept.outcome.absent};
  std::erase_if(done.absent, [&](std::uint32_t member) { return member >= group.open.members.size(); });
  if (!kept.outcome.error.empty()) {
    done.status = unavailable(kept.outcome.error);
  } else {
    done.parts.resize(group.open.members.size());
    for (const auto& [from, payload] : kept.pieces) done.parts[from] = payload;
  }
  group.completed = kept.outcome.step;
  group.pending.reset();
  actions.emplace_back(std::move(done));
}

// ---- sends to whoever asks
void MeetingClient::State::seek(const SeekSender& event) {
  Status why = broken;
  if (why.ok() && phase == Phase::kLeft) why = cancelled("this rank has left its world's collectives");
  if (!why.ok()) {
    actions.emplace_back(SenderFound{event.id, why, 0});
    return;
  }
  seeks[event.id] = {event, event.timeout.count() > 0 ? later(now, event.timeout) : kNever};
  if (is_in()) send(wire::Seek{event.group, event.tag});
}

void MeetingClient::State::found(const wire::Found& message) {
  const auto match = std::ranges::find_if(seeks, [&](const auto& entry) {
    return entry.second.seek.group == message.group && entry.second.seek.tag == message.tag;
  });
  if (match == seeks.end()) return;
  actions.emplace_back(SenderFound{match->first, {}, message.from});
  seeks.erase(match);
}

void MeetingClient::State::time_out() {
  for (auto& [id, group] : groups) {
    if (!group.pending || now < group.pending->deadline) continue;
    break_group(id, group,
                timed_out(group.pending->request.operation + " was given up after " +
                          in_seconds(group.pending->request.timeout) + " and the grace: the coordinator at " +
                          config.hubs[candidate] + " does not answer (" + last_problem + ")"));
  }
  for (auto entry = seeks.begin(); entry != seeks.end();) {
    if (now < entry->second.deadline) {
      ++entry;
      continue;
    }
    actions.emplace_back(
        SenderFound{entry->first,
                    timed_out("nobody has sent anything with tag " + std::to_string(entry->second.seek.tag) +
                              " within " + in_seconds(entry->second.seek.timeout)),
                    0});
    entry = seeks.erase(entry);
  }
}

}  // namespace collab::protocol
