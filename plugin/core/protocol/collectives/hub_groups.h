// The groups of a world's ranks at the hub.
//
// Threads: one caller at a time. Ownership: of the groups.
#pragma once

#include <map>

#include "core/protocol/collectives/hub_group.h"

namespace collab::protocol {

class HubGroups {
 public:
  explicit HubGroups(HubWorld& world) : world_(world) {}

  [[nodiscard]] HubGroup* find(GroupId id);  // null: there is none
  [[nodiscard]] auto begin() const { return groups_.begin(); }
  [[nodiscard]] auto end() const { return groups_.end(); }
  [[nodiscard]] TimePoint next_deadline() const;

  void on_assemble(RankId rank, const wire::Assemble& message);
  void on_disband(RankId rank, const wire::Disband& message);
  void on_contribute(RankId rank, const wire::Contribute& message, const Payload& payload);
  void on_result_ack(RankId rank, const wire::ResultAck& message);
  void catch_up(RankId rank);  // it was admitted
  void settle();               // somebody is gone, or time has passed
  void note_late();
  void clear() { groups_.clear(); }

 private:
  [[nodiscard]] HubGroup* open(RankId rank, const wire::Assemble& message);
  void compare_with_twin(HubGroup& group, std::uint32_t member, const wire::Contribute& message);

  HubWorld& world_;
  std::map<GroupId, HubGroup> groups_;
};

}  // namespace collab::protocol
