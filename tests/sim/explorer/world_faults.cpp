#include <algorithm>

#include "tests/sim/explorer/world.h"

namespace collab::sim {

using namespace protocol;

void World::befall(const Source& source, char how) {
  ++faults_;
  last_progress_ = now_;
  if (how == 'x') return break_link(link_of(source));
  if (source.kind == Kind::kUp) return kill_candidate(links_.at(link_of(source)).candidate);
  const bool linked = source.kind == Kind::kDown;
  const std::uint32_t site = linked ? links_.at(link_of(source)).site : static_cast<std::uint32_t>(source.line);
  if (how == 'q') return tell(site, Depart{"trained to the end"});
  kill_site(site, how);
}

void World::kill_site(std::uint32_t site, char how) {
  Process& process = sites_[site];
  invariants_.site_lost(process.id());
  for (auto& [id, link] : links_) {
    if (link.site != site || link.life != process.life) continue;
    if (std::exchange(link.up_open, false)) link.up.push_back({});
    link.down_open = false;
    link.down.clear();
  }
  lose_peers_of(site);
  if (how == 'w') process.disk = process.writes.back().record;
  if (how == 'l') {
    process.disk = {};
    process.anchor = {};
    process.anchor.offer.digest = Digest{1, 1};
  }
  process.machine.reset();
  process.dials.clear();
  process.writes.clear();
  process.data.clear();
  process.exchange.reset();
  process.mean.reset();
  process.wanted.reset();
  process.training = false;
  process.dead = how == 'k';
  process.begins = how != 'k';
}

// What it had not sent yet is lost to them: its part of a mean, if it was not done with the exchange itself.
void World::lose_peers_of(std::uint32_t site) {
  const Process& process = sites_[site];
  for (const Data& data : process.data) {
    const auto* complete = std::get_if<Complete>(&data);
    if (complete == nullptr) continue;
    for (Process& other : sites_) {
      if (other.name == process.name) continue;
      std::erase_if(other.data, [&](const Data& theirs) {
        const auto* same = std::get_if<Complete>(&theirs);
        return same != nullptr && same->start == complete->start;
      });
    }
  }
  for (auto link = peers_.begin(); link != peers_.end();) {
    const bool ours = (link->second.a.site == site && link->second.a.life == process.life) ||
                      (link->second.b.site == site && link->second.b.life == process.life);
    const PeerLink::End& other = link->second.other(site);
    const bool heard = ours && sites_[other.site].machine && sites_[other.site].life == other.life;
    if (heard) sites_[other.site].data.emplace_back(PeerLost{link->first});
    link = ours && !heard ? peers_.erase(link) : std::next(link);
  }
}

void World::kill_candidate(std::uint32_t candidate) {
  invariants_.coordinator_lost(candidates_[candidate].name);
  candidates_[candidate].machine.reset();
  for (auto& [id, link] : links_) {
    if (link.candidate != candidate) continue;
    if (std::exchange(link.down_open, false)) link.down.push_back({});
    link.up_open = false;
    link.up.clear();
  }
}

// What was on its way is lost.
void World::break_link(LinkId id) {
  Link& link = links_.at(id);
  link.up_open = link.down_open = false;
  link.up.clear();
  link.down.clear();
  link.up.push_back({});
  link.down.push_back({});
  sites_[link.site].unreachable.insert(link.candidate);
}

void World::drop_dead_links() {
  std::erase_if(links_, [](const auto& entry) {
    const Link& link = entry.second;
    return !link.up_open && !link.down_open && link.up.empty() && link.down.empty();
  });
  std::erase_if(held_back_, [this](const auto& entry) {
    return entry.first.line >= kSites && links_.count(link_of(entry.first)) == 0;
  });
}

}  // namespace collab::sim
