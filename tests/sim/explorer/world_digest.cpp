#include <algorithm>

#include "core/base/digest.h"
#include "tests/sim/explorer/inside.h"
#include "tests/sim/explorer/world.h"

namespace collab::sim {

using namespace protocol;

std::vector<LinkId> World::links_alive() const {
  std::vector<LinkId> alive;
  for (const auto& [id, link] : links_) alive.push_back(id);
  for (const auto& [id, link] : peers_) alive.push_back(id);
  std::ranges::sort(alive);
  return alive;
}

// All that decides what comes next, and what will be wrong. Of a machine that has not moved it is known.
Digest World::digest() {
  std::pair of{now_, links_alive()};
  if (of != digests_of_) {
    digests_.fill(std::nullopt);
    digests_of_ = std::move(of);
  }
  Canon canon(now_, digests_of_.second);
  const auto add = [&](std::optional<Digest>& known, const auto& machine) {
    if (machine && !known) {
      Canon inside(now_, digests_of_.second);
      Inside::write(inside, *machine);
      known = hash128(inside.bytes());
    }
    canon.put(known.value_or(Digest{}));
  };
  for (std::uint32_t i = 0; i < kSites; ++i) {
    if (!sites_[i].machine) digests_[i].reset();
    add(digests_[i], sites_[i].machine);
    write_site(canon, sites_[i]);
  }
  for (std::uint32_t i = 0; i < kCandidates; ++i) {
    if (!candidates_[i].machine) digests_[kSites + i].reset();
    add(digests_[kSites + i], candidates_[i].machine);
  }
  write_links(canon);
  write_turns(canon);
  ledger_.write(canon);
  canon.put(faults_);
  return hash128(canon.bytes());
}

void World::write_site(Canon& canon, const Process& site) const {
  canon.all(site.life, site.dead, site.left, site.begins, site.unreachable, site.disk, site.anchor.offer,
            site.anchor.membership.promised, site.anchor.membership.voters, site.exchange, site.mean, site.training,
            std::max(site.trains_until, now_), site.trained, site.uncounted_from, site.fragment, site.snapshot);
  canon.put(site.dials.size());
  for (const DialCoordinator& dial : site.dials) canon.all(dial.candidate, dial.inquiry);
  canon.put(site.writes.size());
  for (const Persist& write : site.writes) canon.all(site.asked - write.number, write.record);
  canon.put(site.wanted.has_value());
  if (site.wanted)
    canon.all(site.wanted->run, site.wanted->round, site.wanted->digest, site.wanted->membership.promised,
              site.wanted->membership.voters);
  canon.put(site.data.size());
  for (const Data& data : site.data) {
    canon.put(static_cast<std::uint8_t>(data.index()));
    if (const auto* complete = std::get_if<Complete>(&data)) canon.put(complete->start);
    if (const auto* fetch = std::get_if<Fetch>(&data)) canon.all(fetch->from, fetch->id, fetch->over);
    if (const auto* lost = std::get_if<PeerLost>(&data)) canon.put(lost->link);
  }
}

void World::write_links(Canon& canon) const {
  for (const auto& [id, link] : links_) {
    canon.all(id, link.site, link.candidate, link.life == sites_[link.site].life, link.inquiry, link.up_open,
              link.down_open);
    for (const auto* queue : {&link.up, &link.down}) {
      canon.put(queue->size());
      for (const Parcel& parcel : *queue) canon.all(parcel.message.has_value(), parcel.digest);
    }
  }
  for (const auto& [id, link] : peers_) {
    for (const PeerLink::End& end : {link.a, link.b}) canon.all(id, end.site, end.life == sites_[end.site].life);
  }
}

// A link by how many there are before it.
void World::write_turns(Canon& canon) const {
  const auto place = [this](const Source& source) {
    if (source.line < kSites) return std::tuple(source.line, source.kind, true);
    const LinkId link = link_of(source);
    const auto before = std::distance(links_.begin(), links_.lower_bound(link));
    const bool alive = links_.count(link) != 0;
    return std::tuple(kSites + static_cast<std::uint64_t>(before), alive ? source.kind : Kind::kBegin, alive);
  };
  canon.put(last_ ? std::optional(place(*last_)) : std::nullopt);
  for (const auto& [source, wait] : held_back_) canon.all(place(source), wait);
  canon.all(now_ - last_progress_ > std::chrono::seconds(30));
}

}  // namespace collab::sim
