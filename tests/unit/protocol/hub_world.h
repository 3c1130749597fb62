// Ranks and hubs of a collective hub in virtual time, over links that can be cut, with a seeded order of delivery.
//
// Threads: one. Ownership: everything; payloads come from one pool.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/prng.h"
#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/collectives/hub_client.h"

namespace collab::protocol::testing {

inline constexpr Duration kGrace = std::chrono::seconds(3);
inline constexpr Duration kBeat = std::chrono::milliseconds(500);

class HubTestWorld {
 public:
  // Rank i stands at sites[i].
  HubTestWorld(std::uint64_t seed, std::vector<std::string> sites, std::size_t hubs) : prng_(seed) {
    wire::Enter self{"night-run", 7, {}, {}, {}, 1, false};
    for (const std::string& site : sites) {
      auto found = std::ranges::find(self.sites, site);
      if (found == self.sites.end()) found = self.sites.insert(found, site);
      self.site_of.push_back(static_cast<std::uint32_t>(found - self.sites.begin()));
    }
    HubClientConfig config{self, {}, kBeat, kGrace, std::chrono::seconds(20)};
    for (std::size_t i = 0; i < hubs; ++i) {
      hubs_.emplace_back();
      revive_hub(i);
      config.hubs.push_back("hub" + std::to_string(i));
    }
    for (std::uint32_t i = 0; i < sites.size(); ++i) {
      config.self.rank = RankId(i);
      config.self.acceptor = AcceptorId(100 + i);
      ranks_.emplace_back();
      ranks_.back().client = std::make_unique<HubClient>(config);
    }
    for (std::uint32_t i = 0; i < sites.size(); ++i) at_client(i, HubBegin{});
  }

  // A process of its own each time: its ballots are its own.
  [[nodiscard]] HubConfig hub_config() {
    return {"night-run", kBeat, kGrace, std::chrono::seconds(20), 1 + prng_.below(1'000'000'000)};
  }

  struct Rank {
    std::unique_ptr<HubClient> client;
    std::map<std::uint64_t, HubExchanged> done;  // by id
    std::map<std::uint64_t, SenderResolved> resolved;
    std::map<std::uint64_t, int> times;  // an exchange was answered
    std::vector<std::string> notes;
    bool dead = false;
    bool paused = false;
    bool mute = false;  // what it says is under way
    bool deaf = false;  // what it is told is under way
    Status broken;
  };

  [[nodiscard]] Rank& rank(std::uint32_t index) { return ranks_[index]; }
  [[nodiscard]] CollectiveHub* hub(std::size_t index) { return hubs_[index].get(); }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] Prng& prng() { return prng_; }

  [[nodiscard]] Payload bytes(const std::string& text) {
    if (text.empty()) return {};
    BufferPtr buffer = pool_->take(text.size());
    std::memcpy(buffer->bytes().data(), text.data(), text.size());
    return whole(buffer);
  }
  [[nodiscard]] static std::string text_of(const Payload& payload) {
    if (payload.bytes == 0) return "";
    return {reinterpret_cast<const char*>(payload.buffer->bytes().data()) + payload.offset, payload.bytes};
  }

  void at_client(std::uint32_t index, const HubClientEvent& event) {
    if (ranks_[index].dead) return;
    const std::vector<HubClientAction> actions = ranks_[index].client->step(now_, event);
    if (on_done) on_done(index, actions);
    for (const HubClientAction& action : actions) {
      std::visit([&](const auto& each) { act(index, each); }, action);
    }
  }
  void open(GroupId group, const std::vector<RankId>& members, GroupId parent = {}, std::uint32_t tag = 0) {
    for (const RankId member : members) at_client(member.value, OpenGroup{group, members, parent, tag});
  }

  void kill_rank(std::uint32_t index) {
    ranks_[index].dead = true;
    for (auto& [id, link] : links_) {
      if (link.rank == index) cut(id);
    }
  }
  void kill_hub(std::size_t index) {
    hubs_[index].reset();
    for (auto& [id, link] : links_) {
      if (link.hub == index) cut(id);
    }
  }
  // Another process at its address: it knows nothing.
  void revive_hub(std::size_t index) { hubs_[index] = std::make_unique<CollectiveHub>(hub_config()); }
  // What is under way on it is lost; both ends hear of it.
  void cut_link_of(std::uint32_t index) {
    for (auto& [id, link] : links_) {
      if (link.rank == index) cut(id);
    }
  }
  void pause(std::uint32_t index, bool on) { ranks_[index].paused = on; }
  // The rank cannot dial this hub; what it has there is lost.
  void block(std::uint32_t index, std::size_t hub) {
    blocked_.insert({index, hub});
    for (auto& [id, link] : links_) {
      if (link.rank == index && link.hub == hub) cut(id);
    }
  }
  void unblock(std::uint32_t index, std::size_t hub) { blocked_.erase({index, hub}); }
  void heal() {
    blocked_.clear();
    for (Rank& rank : ranks_) rank.paused = rank.mute = rank.deaf = false;
  }
  // Sees what a rank is told, before it does.
  std::function<void(std::uint32_t rank, const wire::Message& message)> on_told;
  // Of one event at a client, all it answers.
  std::function<void(std::uint32_t rank, const std::vector<HubClientAction>& actions)> on_done;

  // One thing happens: a delivery, or time passes.
  void step() {
    now_ += Duration(static_cast<std::int64_t>(prng_.below(4000)));
    std::vector<std::pair<LinkId, bool>> ready;  // (link, towards the hub)
    for (auto& [id, link] : links_) {
      if (!link.up.empty() && !ranks_[link.rank].mute) ready.emplace_back(id, true);
      if (!link.down.empty() && !ranks_[link.rank].paused && !ranks_[link.rank].deaf) ready.emplace_back(id, false);
    }
    if (ready.empty()) {
      now_ = std::max(now_, std::min(next_deadline(), now_ + Duration(100'000)));
    } else {
      deliver(ready[prng_.below(ready.size())]);
    }
    ticks();
  }
  template <typename Condition>
  [[nodiscard]] bool run_until(Condition condition, Duration limit) {
    const TimePoint end = now_ + limit;
    while (now_ < end) {
      if (condition()) return true;
      step();
    }
    return condition();
  }
  void run_for(Duration time) {
    (void)run_until([] { return false; }, time);
  }

 private:
  struct Link {
    std::uint32_t rank = 0;
    std::size_t hub = 0;
    std::deque<HubReceived> up;
    std::deque<HubReceived> down;
    bool is_cut = false;
    bool client_told = false;
    bool hub_told = false;
  };

  void cut(LinkId id) {
    Link& link = links_.at(id);
    link.is_cut = true;
    link.up.clear();
    link.down.clear();
  }

  void act(std::uint32_t index, const DialHub& action) {
    if (hubs_[action.candidate] == nullptr || blocked_.contains({index, action.candidate})) {
      return dials_failed_.push_back(index);
    }
    const LinkId id(++last_link_);
    links_[id] = {index, action.candidate, {}, {}, false, false, false};
    dialed_.emplace_back(index, id);
  }
  void act(std::uint32_t, const HubSend& action) {
    Link& link = links_.at(action.link);
    if (!link.is_cut) link.up.push_back({action.link, action.message, copy(action.payload)});
  }
  void act(std::uint32_t, const CloseLink& action) {
    Link& link = links_.at(action.link);
    link.client_told = true;  // it wants to hear no more of it
    if (link.up.empty()) return cut(action.link);
    closing_.insert(action.link);
  }
  void act(std::uint32_t index, const HubExchanged& action) {
    ++ranks_[index].times[action.id];
    ranks_[index].done.emplace(action.id, action);
  }
  void act(std::uint32_t index, const SenderResolved& action) { ranks_[index].resolved.emplace(action.id, action); }
  void act(std::uint32_t, const HubEntered&) {}
  void act(std::uint32_t index, const HubBroken& action) { ranks_[index].broken = action.why; }
  void act(std::uint32_t index, const Note& action) { ranks_[index].notes.push_back(action.text); }

  void at_hub(std::size_t index, const HubEvent& event) {
    if (hubs_[index] == nullptr) return;
    for (const HubAction& action : hubs_[index]->step(now_, event)) {
      if (const auto* send = std::get_if<HubSend>(&action)) {
        Link& link = links_.at(send->link);
        if (!link.is_cut) link.down.push_back({send->link, send->message, copy(send->payload)});
      } else if (const auto* hangup = std::get_if<CloseLink>(&action)) {
        Link& link = links_.at(hangup->link);
        if (link.down.empty()) {
          cut(hangup->link);
        } else {
          closing_.insert(hangup->link);
        }
      }
    }
  }

  [[nodiscard]] BufferPtr copy(const Payload& payload) {
    const Payload made = bytes(text_of(payload));
    return made.buffer;
  }

  void deliver(std::pair<LinkId, bool> what) {
    Link& link = links_.at(what.first);
    auto& queue = what.second ? link.up : link.down;
    const HubReceived message = std::move(queue.front());
    queue.pop_front();
    const std::size_t hub = link.hub;
    const std::uint32_t rank = link.rank;
    if (what.second) {
      at_hub(hub, message);
    } else {
      if (on_told) on_told(rank, message.message);
      at_client(rank, message);
    }
  }

  void ticks() {
    for (const auto& [index, id] : std::exchange(dialed_, {})) at_client(index, HubConnected{id});
    for (const std::uint32_t index : std::exchange(dials_failed_, {})) {
      at_client(index, HubDialFailed{unavailable("connection refused")});
    }
    for (auto entry = closing_.begin(); entry != closing_.end();) {
      Link& link = links_.at(*entry);
      const bool flushed = link.up.empty() && link.down.empty();
      if (flushed) cut(*entry);
      entry = flushed ? closing_.erase(entry) : std::next(entry);
    }
    std::vector<LinkId> ids;
    for (const auto& [id, link] : links_) {
      if (link.is_cut) ids.push_back(id);
    }
    for (const LinkId id : ids) {
      if (!std::exchange(links_.at(id).hub_told, true)) at_hub(links_.at(id).hub, Closed{id, unavailable("cut")});
      Link& link = links_.at(id);
      if (!ranks_[link.rank].paused && !std::exchange(link.client_told, true)) {
        at_client(link.rank, Closed{id, unavailable("cut")});
      }
      if (links_.at(id).hub_told && (links_.at(id).client_told || ranks_[links_.at(id).rank].dead)) links_.erase(id);
    }
    for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].paused && !ranks_[i].dead && now_ >= ranks_[i].client->next_deadline()) at_client(i, Tick{});
    }
    for (std::size_t i = 0; i < hubs_.size(); ++i) {
      if (hubs_[i] != nullptr && now_ >= hubs_[i]->next_deadline()) at_hub(i, Tick{});
    }
  }

  [[nodiscard]] TimePoint next_deadline() const {
    TimePoint next = kNever;
    for (const Rank& rank : ranks_) {
      if (!rank.dead && !rank.paused) next = std::min(next, rank.client->next_deadline());
    }
    for (const auto& hub : hubs_) {
      if (hub != nullptr) next = std::min(next, hub->next_deadline());
    }
    return next;
  }

  Prng prng_;
  TimePoint now_{};
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<CollectiveHub>> hubs_;
  std::map<LinkId, Link> links_;
  std::set<LinkId> closing_;
  std::set<std::pair<std::uint32_t, std::size_t>> blocked_;
  std::vector<std::pair<std::uint32_t, LinkId>> dialed_;
  std::vector<std::uint32_t> dials_failed_;
  std::uint64_t last_link_ = 0;
};

}  // namespace collab::protocol::testing
