#include "core/protocol/collectives/client_groups.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/client_parts.h"
#include "core/protocol/collectives/hub_limits.h"
#include "core/protocol/formatting.h"
#include "core/protocol/mutants.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxHeldEarly = 4096;  // results of all groups that are not open here
constexpr std::size_t kMaxClosed = 4096;     // closed groups that a later hub is told

}  // namespace

void ClientGroup::remember(wire::Enter& enter) const {
  if (!broken_.ok()) return enter.closed.push_back(id_);
  std::uint64_t completed = completed_;
  for (const auto& [step, held] : held_) {
    if (held.stands) completed = std::max(completed, step);
  }
  if (completed > 0 && !mutant(Mutant::kCompletedNotTold)) enter.completed.push_back({id_, completed});
  for (const auto& [step, held] : held_) {
    if (step > completed && !mutant(Mutant::kHeldNotTold)) enter.held.push_back({id_, step, held.result.ballot});
  }
}

void ClientGroup::open(const OpenGroup& event) {
  open_ = event;
  if (all_.link.is_in() && broken_.ok()) all_.send(wire::Assemble{id_, event.members, event.parent, event.tag});
}

void ClientGroup::resend_state() {
  if (!is_open() || !broken_.ok()) return;
  all_.send(wire::Assemble{id_, open_.members, open_.parent, open_.tag});
  if (!pending_) return;
  pending_->parts.clear();
  contribute();
}

void ClientGroup::exchange(const HubRequest& request) {
  queue_.push_back(request);
  begin_next();
}

void ClientGroup::begin_next() {
  while (!pending_ && !queue_.empty()) {
    pending_ = Pending{std::move(queue_.front()), completed_ + 1, all_.now, kNever, {}};
    queue_.pop_front();
    const Duration timeout = pending_->request.timeout;
    // Let the hub give up first, because it knows which ranks it waited for. It takes time to find a successor hub, and
    // for that hub to find out which ranks are gone.
    const Duration grace = (all_.config.hubs.size() > 1 ? 3 : 1) * all_.link.grace();
    if (timeout.count() > 0) pending_->deadline = later(all_.now, timeout + grace + all_.link.heartbeat());
    const auto held = held_.find(pending_->step);
    if (held != held_.end() && held->second.stands) {
      deliver_results();
    } else if (all_.link.is_in()) {
      contribute();
    }
  }
}

void ClientGroup::contribute() {
  const HubRequest& r = pending_->request;
  // A later hub gets only the remaining time, so that no wait is much longer than the time-out.
  const Duration left = r.timeout - std::min(r.timeout, all_.now - pending_->since);
  const Duration timeout = std::min(r.timeout, std::max(left, all_.link.grace()));
  const auto ms = std::min<std::int64_t>(timeout.count() / 1000, wire::kMaxIntervalMs);
  wire::Contribute message{r.group, pending_->step, r.call,   r.operation, r.shape, r.absence,
                           r.root,  r.wants,        r.absent, 0,           r.splits};
  message.timeout_ms = static_cast<std::uint32_t>(ms);
  all_.send(std::move(message), r.payload);
}

void ClientGroup::on_part(const wire::Part& message, const BufferPtr& payload) {
  if (awaits(message.step) && message.from < open_.members.size()) pending_->parts[message.from] = whole(payload);
}

void ClientGroup::on_result(const wire::StepResult& message) {
  if (!broken_.ok() || message.step <= completed_) return;
  const auto held = held_.find(message.step);
  if (held == held_.end() || !held->second.stands) hold(message);
  if (!broken_.ok()) return;
  all_.send(wire::ResultAck{id_, message.step, message.ballot});
  if (message.stands) on_stands(message.step);
}

void ClientGroup::hold(const wire::StepResult& message) {
  const auto [place, fresh] = held_.try_emplace(message.step);
  // An awaited result breaks nothing. A group that is not open here has no call to fail.
  if (fresh && is_open() && !awaits(message.step) && is_behind()) {
    return withdraw(unavailable("this rank fell too far behind: " + std::to_string(held_.size()) +
                                " steps of this group have failed without it, the last one with: " + message.error +
                                " [hub.behind]"));
  }
  place->second = {message, {}, false};
  std::map<std::uint32_t, Payload>& parts = place->second.parts;
  if (awaits(message.step)) parts = std::exchange(pending_->parts, {});
  for (const std::uint32_t member : message.absent) parts.erase(member);
}

bool ClientGroup::is_behind() const {
  const bool awaited = pending_ && held_.contains(pending_->step);
  return held_.size() - (awaited ? 1 : 0) > kMaxHeldOfGroup;
}

void ClientGroup::on_stands(std::uint64_t step) {
  const auto held = held_.find(step);
  if (held == held_.end()) return;
  held->second.stands = true;
  if (!awaits(step)) return;
  deliver_results();
  begin_next();
}

// Hands out the pending step's result, which is final.
void ClientGroup::deliver_results() {
  const Held held = std::move(held_.at(pending_->step));
  held_.erase(pending_->step);
  HubExchanged done{pending_->request.id, {}, {}, held.result.absent};
  std::erase_if(done.absent, [&](std::uint32_t member) { return member >= open_.members.size(); });
  if (!held.result.error.empty()) {
    done.status = unavailable(held.result.error);
  } else {
    done.parts.resize(open_.members.size());
    for (const auto& [from, payload] : held.parts) done.parts[from] = payload;
  }
  completed_ = held.result.step;
  pending_.reset();
  all_.out.emplace_back(std::move(done));
}

void ClientGroup::on_tick() {
  if (all_.now < next_deadline()) return;
  withdraw(timed_out(pending_->request.operation + " was given up after " + in_seconds(pending_->request.timeout) +
                     " and the grace: the coordinator at " + all_.link.address() + " does not answer (" +
                     all_.link.last_problem() + ") [hub.step-timeout]"));
}

void ClientGroup::fail(const Status& why) {
  if (pending_) all_.out.emplace_back(HubExchanged{pending_->request.id, why, {}, {}});
  for (const HubRequest& request : queue_) all_.out.emplace_back(HubExchanged{request.id, why, {}, {}});
  pending_.reset();
  queue_.clear();
}

// Tells the hub, so that the other members do not wait for parts that will not come.
void ClientGroup::withdraw(const Status& why) {
  const bool told = !std::exchange(broken_, why).ok();
  fail(why);
  held_.clear();
  if (!told) all_.groups.send_closed(id_);
}

// ---- all groups

ClientGroup* ClientGroups::find(GroupId id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

TimePoint ClientGroups::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [id, group] : groups_) next = std::min(next, group.next_deadline());
  return next;
}

void ClientGroups::remember(wire::Enter& enter) {
  for (const auto& [id, group] : groups_) group.remember(enter);
  if (enter.closed.size() > wire::kMaxGroups) enter.closed.resize(wire::kMaxGroups);
  const std::size_t newest = std::min(closed_.size(), wire::kMaxGroups - enter.closed.size());
  enter.closed.insert(enter.closed.end(), closed_.end() - static_cast<std::ptrdiff_t>(newest), closed_.end());
  pending_disbands_.clear();
}

void ClientGroups::open(const OpenGroup& event) {
  ClientGroup& group = groups_.try_emplace(event.group, all_, event.group).first->second;
  if (group.is_open()) return;
  held_early_ -= group.held();
  std::erase(closed_, event.group);
  std::erase(pending_disbands_, event.group);
  group.open(event);
}

void ClientGroups::close(GroupId id) {
  ClientGroup* const group = find(id);
  if (group == nullptr) return;
  if (!group->is_open()) held_early_ -= group->held();
  const Status why = cancelled("the group was closed [hub.group-closed]");
  group->withdraw(why);
  forget(id);
  all_.senders.close(id, why);
}

void ClientGroups::forget(GroupId id) {
  groups_.erase(id);
  closed_.push_back(id);
  if (closed_.size() > kMaxClosed) closed_.pop_front();
}

void ClientGroups::exchange(const HubRequest& request) {
  ClientGroup* const group = find(request.group);
  Status why = all_.link.why_over();
  if (why.ok() && group != nullptr && group->is_open()) {
    why = group->broken();
    if (why.ok()) return group->exchange(request);
  } else if (why.ok()) {
    why = invalid_argument("this group has been closed [hub.group-closed]");
  }
  all_.out.emplace_back(HubExchanged{request.id, why, {}, {}});
}

void ClientGroups::resend_state() {
  for (const GroupId id : std::exchange(pending_disbands_, {})) all_.send(wire::Disband{id});
  for (auto& [id, group] : groups_) group.resend_state();
}

void ClientGroups::on_part(const wire::Part& message, const BufferPtr& payload) {
  if (ClientGroup* const group = find(message.group)) group->on_part(message, payload);
}

void ClientGroups::on_result(const wire::StepResult& message) {
  if (!all_.link.is_in() || !all_.acceptor.follows(message.ballot)) return;
  if (std::ranges::find(closed_, message.group) != closed_.end()) return;
  ClientGroup* const known = find(message.group);
  const bool awaited = known != nullptr && known->awaits(message.step);
  if (!awaited && message.error.empty()) return;  // only an error may come without this rank's part
  if (known != nullptr && known->is_open()) return known->on_result(message);
  hold_early(groups_.try_emplace(message.group, all_, message.group).first->second, message);
}

// This rank cannot know whether it will ever open the group. Above a limit, it takes no part in it.
void ClientGroups::hold_early(ClientGroup& group, const wire::StepResult& message) {
  const std::size_t before = group.held();
  group.on_result(message);
  held_early_ += group.held() - before;
  if (!group.is_behind() && held_early_ <= kMaxHeldEarly) return;
  held_early_ -= group.held();
  send_closed(message.group);
  forget(message.group);
}

void ClientGroups::on_stands(const wire::Stands& message) {
  if (ClientGroup* const group = find(message.group)) group->on_stands(message.step);
}

void ClientGroups::on_tick() {
  for (auto& [id, group] : groups_) group.on_tick();
}

void ClientGroups::fail(const Status& why) {
  for (auto& [id, group] : groups_) group.fail(why);
}

void ClientGroups::send_closed(GroupId id) {
  all_.link.is_in() ? all_.send(wire::Disband{id}) : pending_disbands_.push_back(id);
}

}  // namespace collab::protocol
