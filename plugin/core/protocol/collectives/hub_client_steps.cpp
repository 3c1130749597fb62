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
void HubClient::State::remember(wire::Enter& enter) const {
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
      if (step > completed) enter.held.push_back({id, step, kept.result.ballot});
    }
  }
  enter.closed.insert(enter.closed.end(), closed.begin(), closed.end());
}

// The hub leads, and knows what this rank remembers.
void HubClient::State::say_everything() {
  for (const GroupId id : std::exchange(untold, {})) send(wire::Disband{id});
  for (auto& [id, group] : groups) {
    if (!group.opened() || !group.broken.ok()) continue;
    send(wire::Assemble{group.open.group, group.open.members, group.open.parent, group.open.tag});
    if (!group.pending) continue;
    group.pending->parts.clear();
    contribute(group);
  }
  for (const auto& [id, seeking] : resolving) send(wire::ResolveSender{seeking.resolve.group, seeking.resolve.tag});
}

void HubClient::State::open(const OpenGroup& event) {
  Group& group = groups[event.group];
  if (group.opened()) return;
  group.open = event;
  std::erase(closed, event.group);
  std::erase(untold, event.group);
  if (is_in() && group.broken.ok()) send(wire::Assemble{event.group, event.members, event.parent, event.tag});
}

void HubClient::State::close(GroupId id) {
  const auto found_group = groups.find(id);
  if (found_group == groups.end()) return;
  break_group(id, found_group->second, cancelled("the group was closed [hub.group-closed]"));
  groups.erase(found_group);
  closed.push_back(id);
  if (closed.size() > kMaxClosed) closed.pop_front();
  for (auto entry = resolving.begin(); entry != resolving.end();) {
    if (entry->second.resolve.group != id) {
      ++entry;
      continue;
    }
    actions.emplace_back(SenderFound{entry->first, cancelled("the group was closed [hub.group-closed]"), 0});
    entry = resolving.erase(entry);
  }
}

// The others need not wait for what will not come.
void HubClient::State::break_group(GroupId id, Group& group, Status why) {
  const bool told = !std::exchange(group.broken, std::move(why)).ok();
  fail_group(group, group.broken);
  kept_steps -= group.kept.size();
  group.kept.clear();
  if (told) return;
  if (is_in()) return send(wire::Disband{id});
  untold.push_back(id);
}

void HubClient::State::fail_everything(const Status& why) {
  for (auto& [id, group] : groups) fail_group(group, why);
  for (const auto& [id, seeking] : resolving) actions.emplace_back(SenderFound{id, why, 0});
  resolving.clear();
}

void HubClient::State::fail_group(Group& group, const Status& why) {
  if (group.pending) actions.emplace_back(HubExchanged{group.pending->request.id, why, {}, {}});
  for (const HubRequest& request : group.queue) actions.emplace_back(HubExchanged{request.id, why, {}, {}});
  group.pending.reset();
  group.queue.clear();
}

void HubClient::State::exchange(const HubRequest& request) {
  const auto found_group = groups.find(request.group);
  Status why = broken;
  if (why.ok() && phase == Phase::kLeft)
    why = cancelled("this rank has left its world's collectives [hub.left-during-step]");
  if (why.ok() && (found_group == groups.end() || !found_group->second.opened())) {
    why = invalid_argument("this group has been closed [hub.group-closed]");
  }
  if (why.ok()) why = found_group->second.broken;
  if (!why.ok()) {
    actions.emplace_back(HubExchanged{request.id, why, {}, {}});
    return;
  }
  found_group->second.queue.push_back(request);
  begin_next(found_group->second);
}

void HubClient::State::begin_next(Group& group) {
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
      contribute(group);
    }
  }
}

void HubClient::State::contribute(const Group& group) {
  const HubRequest& r = group.pending->request;
  // To a later hub: what is left, so that no wait is much longer than the time-out.
  const Duration left = r.timeout - std::min(r.timeout, now - group.pending->since);
  const Duration timeout = std::min(r.timeout, std::max(left, config.link_grace));
  const auto ms = std::min<std::int64_t>(timeout.count() / 1000, wire::kMaxIntervalMs);
  wire::Contribute message{
      r.group, group.pending->step, r.call, r.operation, r.shape, r.absence, r.root, r.wants, r.absent, 0, r.splits};
  message.timeout_ms = static_cast<std::uint32_t>(ms);
  send(std::move(message), r.payload);
}

void HubClient::State::part(const wire::Part& message, const BufferPtr& payload) {
  const auto found_group = groups.find(message.group);
  if (found_group == groups.end() || !found_group->second.pending) return;
  Group& group = found_group->second;
  if (group.pending->step != message.step || message.from >= group.open.members.size()) return;
  group.pending->parts[message.from] = whole(payload);
}

void HubClient::State::result(const wire::StepResult& message) {
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
  send(wire::ResultAck{message.group, message.step, message.ballot});
  if (message.stands) stands(message.group, message.step);
}

void HubClient::State::keep(Group& group, const wire::StepResult& message) {
  const auto [place, fresh] = group.kept.try_emplace(message.step);
  if (fresh) ++kept_steps;
  if (fresh && (group.kept.size() > kMaxKept || kept_steps > kMaxKeptSteps)) {
    return break_group(message.group, group,
                       unavailable("this rank fell too far behind: " + std::to_string(group.kept.size()) +
                                   " steps of this group have failed without it, the last one so: " + message.error +
                                   " [hub.behind]"));
  }
  Kept& kept = place->second;
  kept = {message, {}, false};
  if (group.pending && group.pending->step == message.step) kept.parts = std::exchange(group.pending->parts, {});
  for (const std::uint32_t member : message.absent) kept.parts.erase(member);
}

void HubClient::State::stands(GroupId id, std::uint64_t step) {
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
void HubClient::State::give_out(Group& group) {
  const auto place = group.kept.find(group.pending->step);
  const Kept kept = std::move(place->second);
  group.kept.erase(place);
  --kept_steps;
  HubExchanged done{group.pending->request.id, {}, {}, kept.result.absent};
  std::erase_if(done.absent, [&](std::uint32_t member) { return member >= group.open.members.size(); });
  if (!kept.result.error.empty()) {
    done.status = unavailable(kept.result.error);
  } else {
    done.parts.resize(group.open.members.size());
    for (const auto& [from, payload] : kept.parts) done.parts[from] = payload;
  }
  group.completed = kept.result.step;
  group.pending.reset();
  actions.emplace_back(std::move(done));
}

// ---- sends to whoever asks
void HubClient::State::resolve(const SeekSender& event) {
  Status why = broken;
  if (why.ok() && phase == Phase::kLeft)
    why = cancelled("this rank has left its world's collectives [hub.left-during-step]");
  if (!why.ok()) {
    actions.emplace_back(SenderFound{event.id, why, 0});
    return;
  }
  resolving[event.id] = {event, event.timeout.count() > 0 ? later(now, event.timeout) : kNever};
  if (is_in()) send(wire::ResolveSender{event.group, event.tag});
}

void HubClient::State::found(const wire::SenderResolved& message) {
  const auto match = std::ranges::find_if(resolving, [&](const auto& entry) {
    return entry.second.resolve.group == message.group && entry.second.resolve.tag == message.tag;
  });
  if (match == resolving.end()) return;
  actions.emplace_back(SenderFound{match->first, {}, message.from});
  resolving.erase(match);
}

void HubClient::State::time_out() {
  for (auto& [id, group] : groups) {
    if (!group.pending || now < group.pending->deadline) continue;
    break_group(id, group,
                timed_out(group.pending->request.operation + " was given up after " +
                          in_seconds(group.pending->request.timeout) + " and the grace: the coordinator at " +
                          config.hubs[candidate] + " does not answer (" + last_problem + ") [hub.step-timeout]"));
  }
  for (auto entry = resolving.begin(); entry != resolving.end();) {
    if (now < entry->second.deadline) {
      ++entry;
      continue;
    }
    actions.emplace_back(
        SenderFound{entry->first,
                    timed_out("nobody has sent anything with tag " + std::to_string(entry->second.resolve.tag) +
                              " within " + in_seconds(entry->second.resolve.timeout) + " [hub.no-sender]"),
                    0});
    entry = resolving.erase(entry);
  }
}

}  // namespace collab::protocol
