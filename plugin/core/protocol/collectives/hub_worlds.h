// The worlds of a hub, whether there is room for another, and which rank uses which link.
//
// Threads: one caller at a time. Ownership: owns the worlds, and the totals of their ranks' budgets.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/protocol/collectives/hub_budget.h"
#include "core/protocol/collectives/hub_limits.h"
#include "core/protocol/collectives/hub_world.h"

namespace collab::protocol {

class HubWorlds {
 public:
  struct Place {
    std::uint64_t world = 0;
    RankId rank;
    bool operator==(const Place&) const = default;
  };
  explicit HubWorlds(HubParts& all) : all_(all) {}

  [[nodiscard]] HubWorld& at(std::uint64_t number) { return worlds_.at(number); }
  [[nodiscard]] auto begin() const { return worlds_.begin(); }
  [[nodiscard]] auto end() const { return worlds_.end(); }
  [[nodiscard]] bool knows(LinkId link) const { return links_.contains(link) || closing_links_.contains(link); }
  // Messages in flight on a closing link are ignored: its rank may have entered over another link since.
  [[nodiscard]] bool is_closing(LinkId link) const { return closing_links_.contains(link); }
  [[nodiscard]] const Place* find_place(LinkId link) const;

  [[nodiscard]] std::size_t held() const { return parts_.held() + memory_.held(); }  // of all ranks

  void on_enter(const HubReceived& event, const wire::Enter& message);
  void on_left(std::uint64_t number);  // one of the world's ranks has left
  // If there is no room for more parts, drops parts of ranks that have died, or that will bring them again on entering.
  void make_room_for_parts(std::size_t bytes);
  void on_tick();
  // ---- links
  void on_closed(LinkId link);
  void enter(LinkId link, const Place& place) { links_[link] = place; }
  void refuse(LinkId link, const std::string& why);
  void close_link(LinkId link, const std::string& why);

 private:
  [[nodiscard]] std::string why_refused(LinkId link, const wire::Enter& message) const;
  [[nodiscard]] std::string why_no_room(const wire::Enter& message, const std::string& host) const;
  void make_room(const wire::Enter& message, const std::string& host);
  void erase(std::uint64_t number);
  void divide_budgets();
  void forget(LinkId link);

  HubParts& all_;
  HubTotal parts_{kMaxRankParts, kMaxHubParts};
  HubTotal memory_{kMaxRankMemory, kMaxHubMemory};
  std::uint64_t begun_ = 0;
  std::map<std::uint64_t, HubWorld> worlds_;
  std::map<LinkId, Place> links_;
  std::set<LinkId> closing_links_;  // until they are closed
};

}  // namespace collab::protocol
