// The worlds of a hub, and whether there is room for one more.
//
// Threads: one caller at a time. Ownership: of the worlds, and of the totals that their ranks' budgets are parts of.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/protocol/collectives/hub_budget.h"
#include "core/protocol/collectives/hub_limits.h"
#include "core/protocol/collectives/hub_world.h"

namespace collab::protocol {

class HubWorlds {
 public:
  explicit HubWorlds(HubParts& all) : all_(all) {}

  [[nodiscard]] HubWorld& at(std::uint64_t number) { return worlds_.at(number); }
  [[nodiscard]] auto begin() const { return worlds_.begin(); }
  [[nodiscard]] auto end() const { return worlds_.end(); }

  void on_enter(LinkId link, const wire::Enter& message);
  void on_left(std::uint64_t number);  // one of its ranks has
  void on_tick();

 private:
  [[nodiscard]] std::string why_refused(LinkId link, const wire::Enter& message) const;
  [[nodiscard]] std::string make_room(const wire::Enter& message);
  void erase(std::uint64_t number);
  void count();

  HubParts& all_;
  HubTotal parts_{kMaxRankParts, kMaxHubParts};
  HubTotal memory_{kMaxRankMemory, kMaxHubMemory};
  std::uint64_t begun_ = 0;
  std::map<std::uint64_t, HubWorld> worlds_;
};

}  // namespace collab::protocol
