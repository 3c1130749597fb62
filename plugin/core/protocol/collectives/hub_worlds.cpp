#include "core/protocol/collectives/hub_worlds.h"

#include <optional>
#include <utility>
#include <vector>

#include "core/protocol/collectives/hub_parts.h"

namespace collab::protocol {

void HubWorlds::on_enter(const HubReceived& event, const wire::Enter& message) {
  const LinkId link = event.link;
  std::string why = why_refused(link, message);
  const bool fresh = !worlds_.contains(message.world);
  if (why.empty() && fresh) {
    make_room(message, event.host);
    why = why_no_room(message, event.host);
  }
  if (why.empty() && fresh) {
    // Never use a ballot for two worlds.
    const wire::Ballot ballot{++begun_, all_.config.hub};
    worlds_.try_emplace(message.world, all_, message, event.host, ballot, parts_, memory_);
    divide_budgets();
  }
  if (why.empty()) why = worlds_.at(message.world).why_refused(message);
  if (why.empty()) return worlds_.at(message.world).on_enter(link, message);
  if (fresh) erase(message.world);
  refuse(link, why);
}

void HubWorlds::on_left(std::uint64_t number) {
  if (worlds_.at(number).ranks.all_left()) erase(number);
}

void HubWorlds::on_tick() {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, world] : worlds_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    if (all_.now >= worlds_.at(number).next_deadline()) worlds_.at(number).on_tick();
    if (all_.now >= worlds_.at(number).ranks.abandoned_at()) erase(number);
  }
}

void HubWorlds::erase(std::uint64_t number) {
  all_.counters.presence_changed();
  worlds_.erase(number);
  divide_budgets();
}

void HubWorlds::divide_budgets() {
  parts_.divide_among(worlds_.size());
  memory_.divide_among(worlds_.size());
}

std::string HubWorlds::why_refused(LinkId link, const wire::Enter& message) const {
  if (message.swarm != all_.config.swarm) {
    return "this coordinator serves the swarm " + all_.config.swarm + ", this rank asks for " + message.swarm +
           ": set the same COLLAB_RUN, or another COLLAB_COORDINATOR [hub.other-swarm]";
  }
  const Place* const own = find_place(link);
  if (own == nullptr || *own == Place{message.world, message.rank}) return "";
  return "this link already belongs to rank " + std::to_string(own->rank.value) + ", or to another world; rank " +
         std::to_string(message.rank.value) + " needs a link of its own [hub.link-taken]";
}

// Worlds of the same host whose ranks have died make room, the longest silent one first. Each restart after a crash is
// a new world. Worlds of other hosts stay, so no host makes the hub forget another host's worlds.
void HubWorlds::make_room(const wire::Enter& message, const std::string& host) {
  while (!why_no_room(message, host).empty()) {
    std::optional<std::pair<TimePoint, std::uint64_t>> longest;
    for (const auto& [number, world] : worlds_) {
      const std::optional<TimePoint> since = world.host == host ? world.ranks.silent_since() : std::nullopt;
      if (since && (!longest || *since < longest->first)) longest = {*since, number};
    }
    if (!longest) return;
    erase(longest->second);
  }
}

void HubWorlds::make_room_for_parts(std::size_t bytes) {
  if (parts_.held() + bytes <= parts_.most()) return;
  std::vector<std::uint64_t> silent;
  for (const auto& [number, world] : worlds_) {
    if (world.ranks.silent_since()) silent.push_back(number);
  }
  for (const std::uint64_t number : silent) erase(number);
}

// Empty: there is room for one more world of a rank of that host.
std::string HubWorlds::why_no_room(const wire::Enter& message, const std::string& host) const {
  const std::size_t ranks = message.site_of.size();
  std::size_t others = 0;
  std::size_t of_host = 0;
  for (const auto& [number, world] : worlds_) {
    others += world.ranks.size();
    of_host += world.host == host ? 1 : 0;
  }
  const std::string remedy = "; end another, or start a coordinator of its own for this one [hub.too-many-worlds]";
  if (of_host >= kMaxWorldsOfHost) {
    return "this coordinator has " + std::to_string(of_host) + " worlds that ranks of the same host have begun, " +
           "and accepts no more from one host" + remedy;
  }
  const bool too_long = ranks > kSmallWorld && ranks + others > kMaxWorldRanks;
  if (worlds_.size() < kMaxWorlds && !too_long) return "";
  return "this world has " + std::to_string(ranks) + " ranks, and this coordinator has " +
         std::to_string(worlds_.size()) + " worlds of " + std::to_string(others) + " ranks: at most " +
         std::to_string(kMaxWorlds) + ", and " + std::to_string(kMaxWorldRanks) + " ranks where one has more than " +
         std::to_string(kSmallWorld) + remedy;
}

// ---- links

const HubWorlds::Place* HubWorlds::find_place(LinkId link) const {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &found->second;
}

void HubWorlds::refuse(LinkId link, const std::string& why) {
  all_.note(Note::Level::kWarning, "refused", "the world's collectives refuse a rank: " + why);
  all_.send(link, wire::Refuse{why});
  close_link(link, why);
}

void HubWorlds::close_link(LinkId link, const std::string& why) {
  if (link.value == 0) return;
  forget(link);
  closing_links_.insert(link);
  all_.out.emplace_back(CloseLink{link, why});
}

void HubWorlds::on_closed(LinkId link) {
  closing_links_.erase(link);
  forget(link);
}

void HubWorlds::forget(LinkId link) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  worlds_.at(found->second.world).ranks.lose_link(found->second.rank);
  links_.erase(found);
}

}  // namespace collab::protocol
