#include "core/protocol/collectives/hub_senders.h"

#include "core/protocol/collectives/hub_parts.h"

namespace collab::protocol {

void HubSenders::on_resolve(RankId rank, const wire::ResolveSender& message) {
  const Wait wait{rank, message.group, message.tag};
  if (!waiting_.contains(wait)) {
    if (!world_.memory.has_room(rank, kEntryCost, "another sender that it looks for")) return;
    waiting_[wait] = world_.memory.charge(rank, kEntryCost);
  }
  for (const auto& [id, group] : world_.groups) {
    if (group.parent() == message.group && group.tag() == message.tag && group.members().back() == rank) tell(group);
  }
}

void HubSenders::tell(const HubGroup& pair) {
  if (pair.parent().value == 0) return;
  const RankId receiver = pair.members().back();
  const auto wait = waiting_.find({receiver, pair.parent(), pair.tag()});
  const HubGroup* const parent = world_.groups.find(pair.parent());
  if (wait == waiting_.end() || parent == nullptr || !pair.waits_to_send()) return;
  const auto from = parent->member_of(pair.members().front());
  if (!from) return;
  world_.send(receiver, wire::SenderResolved{pair.parent(), pair.tag(), *from});
  waiting_.erase(wait);
}

}  // namespace collab::protocol
