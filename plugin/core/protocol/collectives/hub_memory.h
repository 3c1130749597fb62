// What a world's ranks remember as acceptors of their groups' steps, as far as they have reported it; and how much the
// hub may hold for each rank.
//
// Threads: one caller at a time. Ownership: owns the budgets of this world's charges.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/collectives/hub_budget.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct HubWorld;

class HubMemory {
 public:
  using Steps = std::map<std::uint64_t, wire::Ballot>;
  HubMemory(HubWorld& world, HubTotal& parts, HubTotal& memory);

  [[nodiscard]] std::uint64_t completed(RankId rank, GroupId group) const;
  [[nodiscard]] const Steps& held(RankId rank, GroupId group) const;  // results, with their ballots
  [[nodiscard]] std::optional<wire::Ballot> held(RankId rank, GroupId group, std::uint64_t step) const;
  [[nodiscard]] bool has_closed(RankId rank, GroupId group) const;
  [[nodiscard]] HubBudget& parts(RankId rank) { return ranks_[rank.value].parts; }
  [[nodiscard]] const HubBudget& parts(RankId rank) const { return ranks_[rank.value].parts; }

  [[nodiscard]] std::uint64_t recalls() const { return recalls_; }  // how often a rank has entered with its state
  // The budget for parts of others that this rank has not taken. They count here once their contributors lack room.
  [[nodiscard]] HubBudget& unacknowledged(RankId rank) { return ranks_[rank.value].unacknowledged; }
  [[nodiscard]] bool leaves_too_much(RankId rank) {
    return unacknowledged(rank).held() > unacknowledged(rank).all().each();
  }
  // True if there is room for the steps and groups that the message names. Otherwise the rank is refused.
  [[nodiscard]] bool recall(const wire::Enter& message);
  // True if the hub can hold `bytes` more for this rank. Otherwise the rank is refused.
  [[nodiscard]] bool require_room(RankId rank, std::size_t bytes, const std::string& what);
  [[nodiscard]] HubCharge charge(RankId rank, std::size_t bytes) { return {ranks_[rank.value].memory, bytes}; }
  void hold(RankId rank, GroupId group, std::uint64_t step, const wire::Ballot& ballot);
  void complete(RankId rank, GroupId group, std::uint64_t step);
  [[nodiscard]] bool close(RankId rank, GroupId group);  // false: the rank is refused
  void reopen(RankId rank, GroupId group);
  void forget(GroupId group, const std::vector<RankId>& members);

 private:
  struct Rank {
    HubBudget parts;  // its parts that the hub holds
    HubBudget unacknowledged;
    HubBudget memory;  // the hub's memory of it
    std::map<GroupId, std::uint64_t> completed{};
    std::map<GroupId, Steps> held{};
    std::set<GroupId> closed{};
    std::size_t entered_with = 0;  // entries of `completed` and `held` in its last Enter
    HubCharge named{};             // for those entries and `closed`
  };
  void charge_closed(Rank& rank);

  HubWorld& world_;
  std::vector<Rank> ranks_;
  std::uint64_t recalls_ = 0;
};

}  // namespace collab::protocol
