// Ranks that receive from whoever sends to them: each is told as soon as a sender is known.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "core/protocol/collectives/hub_budget.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct HubWorld;
class HubGroup;

class HubSenders {
 public:
  explicit HubSenders(HubWorld& world) : world_(world) {}

  void on_resolve(RankId rank, const wire::ResolveSender& message);
  void tell(const HubGroup& pair);  // a part has come to it
  void clear() { waiting_.clear(); }

 private:
  using Wait = std::tuple<RankId, GroupId, std::uint32_t>;  // who, in which group, with which tag

  HubWorld& world_;
  std::map<Wait, HubCharge> waiting_;
};

}  // namespace collab::protocol
