#include "core/protocol/collectives/client_groups.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/client_parts.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxClosed = 4096;  // groups that are told to a later hub

}  // namespace

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
  enter.closed.insert(enter.closed.end(), closed_.begin(), closed_.end());
  untold_.clear();
}

void ClientGroups::open(const OpenGroup& event) {
  ClientGroup& group = groups_.try_emplace(event.group, all_, event.group).first->second;
  if (group.is_open()) return;
  std::erase(closed_, event.group);
  std::erase(untold_, event.group);
  group.open(event);
}

bool ClientGroups::close(GroupId id, const Status& why) {
  ClientGroup* const group = find(id);
  if (group == nullptr) return false;
  group->break_off(why);
  groups_.erase(id);
  closed_.push_back(id);
  if (closed_.size() > kMaxClosed) closed_.pop_front();
  return true;
}

void ClientGroups::exchange(const HubRequest& request) {
  ClientGroup* const group = find(request.group);
  Status why = all_.link.why_over();
  if (why.ok() && (group == nullptr || !group->is_open())) {
    why = invalid_argument("this group has been closed [hub.group-closed]");
  }
  if (why.ok()) why = group->broken();
  if (why.ok()) return group->exchange(request);
  all_.out.emplace_back(HubExchanged{request.id, why, {}, {}});
}

void ClientGroups::say_everything() {
  for (const GroupId id : std::exchange(untold_, {})) all_.send(wire::Disband{id});
  for (auto& [id, group] : groups_) group.say_everything();
}

void ClientGroups::on_part(const wire::Part& message, const BufferPtr& payload) {
  if (ClientGroup* const group = find(message.group)) group->on_part(message, payload);
}

void ClientGroups::on_result(const wire::StepResult& message) {
  if (!all_.link.is_in() || !all_.acceptor.follows(message.ballot)) return;
  if (std::ranges::find(closed_, message.group) != closed_.end()) return;
  ClientGroup* const known = find(message.group);
  const bool awaited = known != nullptr && known->awaits(message.step);
  if (!awaited && message.error.empty()) return;  // a part in it was not asked for
  groups_.try_emplace(message.group, all_, message.group).first->second.on_result(message);
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

void ClientGroups::tell_closed(GroupId id) { all_.link.is_in() ? all_.send(wire::Disband{id}) : untold_.push_back(id); }

}  // namespace collab::protocol
