// The groups of a world's ranks at the hub, and the ranks that wait in one for a message from any sender.
//
// Threads: one caller at a time. Ownership: of the groups.
#pragma once

#include <map>
#include <set>
#include <tuple>

#include "core/protocol/collectives/hub_agenda.h"
#include "core/protocol/collectives/hub_group.h"

namespace collab::protocol {

class HubGroups {
 public:
  explicit HubGroups(HubWorld& world) : world_(world) {}

  [[nodiscard]] HubGroup* find(GroupId id);  // null: there is none
  [[nodiscard]] auto begin() const { return groups_.begin(); }
  [[nodiscard]] auto end() const { return groups_.end(); }
  [[nodiscard]] TimePoint next_deadline() const { return agenda_.next(); }
  [[nodiscard]] HubAgenda& agenda() { return agenda_; }
  void collect_calls(CallsUnderWay& calls) const;

  void on_assemble(RankId rank, const wire::Assemble& message);
  void on_disband(RankId rank, const wire::Disband& message);
  void on_contribute(RankId rank, const wire::Contribute& message, const Payload& payload);
  void on_result_ack(RankId rank, const wire::ResultAck& message);
  void on_resolve(RankId rank, const wire::ResolveSender& message);
  void catch_up(RankId rank);  // the rank was admitted
  void settle();               // ranks are gone
  void settle(RankId rank);    // this rank is gone
  void on_tick();
  void clear();

 private:
  using Receiver = std::tuple<RankId, GroupId, std::uint32_t>;  // the waiting rank, its group, its tag
  [[nodiscard]] HubGroup* open(RankId rank, const wire::Assemble& message);
  void send_group_mismatch(RankId rank, const HubGroup& group, std::uint64_t step);
  void compare_with_twin(HubGroup& group, std::uint32_t member, const wire::Contribute& message);
  [[nodiscard]] static Receiver receiver_of(const HubGroup& pair) {
    return {pair.members().back(), pair.parent(), pair.tag()};
  }
  void notify_receiver(const HubGroup& pair);

  [[nodiscard]] const std::set<GroupId>& of(RankId rank) const;
  void erase(const HubGroup& group);
  void make_room(RankId rank, std::size_t bytes);
  void pass_charges(RankId rank);
  [[nodiscard]] bool is_late(RankId rank);  // lacks a result that was decided a grace ago

  HubWorld& world_;
  HubAgenda agenda_;
  std::map<GroupId, HubGroup> groups_;
  std::map<RankId, std::set<GroupId>> of_rank_;
  std::map<Receiver, HubCharge> receivers_;
  std::map<Receiver, std::set<GroupId>> pairs_;  // pairs whose first member has sent to the receiver
};

}  // namespace collab::protocol
