// Links between sites: who dials, who is who, what a site that fetches our anchor gets.
//
//   dialled by us:    connected --our Hello--> greeting --its Hello, our Heartbeat----------------> usable
//   dialled by them:  --its Hello--> unlisted --the roster lists it: our Hello--> answered --its--> usable
//                                                                                     next message
//
// The data lane may overtake our Hello, so who was dialled sends no data before it knows that its Hello has arrived.
// Of two links to one site, the one dialled by the higher site stays; of two dialled by the same, the newer.
#include <algorithm>
#include <vector>

#include "core/base/text.h"
#include "core/protocol/site/site_state.h"
#include "core/wire/encoding.h"

namespace collab::protocol {

bool Site::State::stands_in_roster(const PeerLink& peer) const {
  const auto member = roster.find(peer.site);
  if (!self || member == roster.end() || member->second.name != peer.name) return false;
  return peer.state == PeerState::kUnlisted || member->second.address == peer.address;
}

bool Site::State::is_proved(const PeerLink& peer) const {
  const auto key = keys.find(peer.site);
  return stands_in_roster(peer) && key != keys.end() && key->second == peer.key;
}

void Site::State::on_roster(const wire::Roster& update) {
  if (update.term < term) return;
  roster.clear();
  for (const wire::Member& member : update.members) roster[member.site] = member;
  std::erase_if(keys, [this](const auto& entry) { return roster.count(entry.first) == 0; });
  std::vector<LinkId> gone;
  std::vector<LinkId> arrived;
  for (const auto& [link, peer] : peers) {
    if (peer.state >= PeerState::kAnswered && !stands_in_roster(peer)) gone.push_back(link);
    if (peer.state == PeerState::kUnlisted && is_proved(peer)) arrived.push_back(link);
  }
  for (const LinkId link : gone) hang_up_peer(link, "the roster does not list " + peers.at(link).name + " any more");
  for (const LinkId link : arrived) answer_peer(link);
  for (auto dial = peer_dials.begin(); dial != peer_dials.end();) {
    dial = roster.count(dial->first) == 0 ? peer_dials.erase(dial) : std::next(dial);
  }
  dial_everyone();
  pursue_installation();
  pursue_optimizer();
  pursue_links();
}

// They come before the roster that lists the new ones.
void Site::State::on_keys(const wire::Keys& told) {
  for (const wire::Key& each : told.keys) {
    keys[each.site] = each.key;
    std::vector<LinkId> arrived;
    for (const auto& [link, peer] : peers) {
      if (peer.site != each.site) continue;
      if (peer.state == PeerState::kGreeting) greet(link);  // the other may know the new key only
      if (peer.state == PeerState::kUnlisted && is_proved(peer)) arrived.push_back(link);
    }
    for (const LinkId link : arrived) answer_peer(link);
  }
}

void Site::State::from_peer(LinkId link, const wire::Message& message) {
  if (const auto* hello = std::get_if<wire::Hello>(&message)) return on_hello(link, *hello);
  const std::string name(wire::name_of(message));
  if (const auto peer = peers.find(link); peer == peers.end() || peer->second.state < PeerState::kAnswered) {
    const std::string why = name + " came before Hello";
    if (peer != peers.end()) return hang_up_peer(link, why);
    out.emplace_back(Hangup{link, why});
    return;
  }
  if (peers.at(link).state == PeerState::kAnswered) use_peer(link);
  const auto peer = peers.find(link);
  if (peer == peers.end()) return;  // another link to the same site stays
  if (const auto* fetch = std::get_if<wire::FetchAnchor>(&message)) return on_fetch(link, *fetch);
  if (const auto* moved = std::get_if<wire::AnchorMoved>(&message)) return on_anchor_moved(peer->second.site, *moved);
  if (const auto* fetch = std::get_if<wire::FetchOptimizer>(&message)) {
    out.emplace_back(ServeOptimizer{link, peer->second.name, *fetch});
    return;
  }
  if (const auto* state = std::get_if<wire::OptimizerState>(&message)) return on_optimizer_state(link, *state);
  const bool data = std::holds_alternative<wire::Chunk>(message) || std::holds_alternative<wire::Heartbeat>(message);
  if (!data)
    note(Note::Level::kWarning, "ignored", peer->second.name + " sent " + name + ", which no site sends another");
}

void Site::State::on_hello(LinkId link, const wire::Hello& hello) {
  const auto [found, fresh] = peers.try_emplace(link);
  PeerLink& peer = found->second;
  if (fresh) peer.since = now;
  if (!fresh && peer.state > PeerState::kUnlisted) return;
  const std::string who = json_quote(hello.name) + " (site " + std::to_string(hello.site.value) + ")";
  if (hello.swarm != join.swarm) {
    return hang_up_peer(
        link, who + " is of the swarm " + json_quote(hello.swarm) + ", this site of " + json_quote(join.swarm));
  }
  if (hello.site == self) return hang_up_peer(link, who + " claims the number of this site, " + join.site);
  if (peer.dialed) {
    if (hello.site != peer.site || hello.name != peer.name) {
      return hang_up_peer(link,
                          "dialled " + peer.name + ", reached " + who + ": is its address right (COLLAB_ADVERTISE)?");
    }
    if (!stands_in_roster(peer)) return hang_up_peer(link, peer.name + " is no member any more");
    if (!is_proved(peer) || hello.key != peer.key)
      return hang_up_peer(link, who + " does not prove that it is that site");
    out.emplace_back(Send{link, wire::Heartbeat{0, true}});
    return use_peer(link);
  }
  const auto waiting = std::count_if(peers.begin(), peers.end(),
                                     [](const auto& entry) { return entry.second.state == PeerState::kUnlisted; });
  if (static_cast<std::size_t>(waiting) > kMaxUnknownPeers)
    return hang_up_peer(link, "too many links of unknown sites");
  peer.site = hello.site;
  peer.name = hello.name;
  peer.key = hello.key;
  if (is_proved(peer)) answer_peer(link);
}

void Site::State::greet(LinkId link) {
  PeerLink& peer = peers.at(link);
  if (const auto key = keys.find(peer.site); peer.dialed && key != keys.end()) peer.key = key->second;
  out.emplace_back(Send{link, wire::Hello{join.swarm, term, *self, join.site, peer.key}});
}

void Site::State::answer_peer(LinkId link) {
  PeerLink& peer = peers.at(link);
  peer.state = PeerState::kAnswered;
  peer.address = roster.at(peer.site).address;
  peer.since = now;
  greet(link);
}

void Site::State::use_peer(LinkId link) {
  PeerLink& peer = peers.at(link);
  const SiteId site = peer.site;
  if (const auto other = link_of.find(site); other != link_of.end()) {
    const auto by_the_higher = [&](const PeerLink& p) { return p.dialed == (*self > site); };
    const LinkId old = other->second;
    if (by_the_higher(peers.at(old)) && !by_the_higher(peer)) {
      return hang_up_peer(link, "there is another link between " + join.site + " and " + peer.name);
    }
    peer.state = PeerState::kUsable;
    other->second = link;
    return hang_up_peer(old, "replaced by another link between " + join.site + " and " + peer.name);
  }
  peer.state = PeerState::kUsable;
  link_of[site] = link;
  pursue_installation();
  pursue_optimizer();
  pursue_links();
}

// For links whose end we choose; forget_peer() is for those that end on us, too.
void Site::State::hang_up_peer(LinkId link, const std::string& why) {
  out.emplace_back(Hangup{link, why});
  forget_peer(link, why);
}

void Site::State::forget_peer(LinkId link, const std::string& why) {
  const auto found = peers.find(link);
  if (found == peers.end()) return;
  const PeerLink peer = found->second;
  peers.erase(found);
  fetches.erase(link);
  if (const auto current = link_of.find(peer.site); current != link_of.end() && current->second == link)
    link_of.erase(current);
  if (installation) {
    const auto source = installation->over.find(peer.site);
    if (source != installation->over.end() && source->second == link) {
      installation->over.erase(source);
      out.emplace_back(DropAnchorSource{peer.site});
      pursue_installation();
    }
  }
  if (peer.state != PeerState::kUsable) return;
  if (optimizer_fetch.link == link && optimizer_fetch.phase > FetchPhase::kLinking)
    leave_optimizer("the link to it was lost: " + why);
  if (exchanges_with(peer.site)) lose_exchange_link(peer.site, why);
  pursue_links();
}

void Site::State::dial_peer(SiteId site) {
  const auto member = roster.find(site);
  if (member == roster.end() || member->second.address.empty() || linked(site)) return;
  for (const auto& [link, peer] : peers) {
    if (peer.dialed && peer.site == site) return;  // connected; its Hello is on its way
  }
  PeerDial& dial = peer_dials[site];
  if (dial.dial_out || (dial.at != kNever && now < dial.at)) return;
  dial.dial_out = true;
  dial.at = later(now, kDialLimit);
  out.emplace_back(DialPeer{site, member->second.address});
}

void Site::State::dial_everyone() {
  if (!self || !cannot_be_dialled()) return;
  for (const auto& [site, member] : roster) {
    if (site != *self && !member.address.empty()) dial_peer(site);
  }
}

void Site::State::on_fetch(LinkId link, const wire::FetchAnchor& fetch) {
  auto& waiting = fetches[link];
  if (waiting.size() >= kMaxFetches) return hang_up_peer(link, "it asks for more than is answered");
  waiting.push_back(fetch);
  answer_fetches();
}

// A site that is told to fetch from us may hear of it before our own anchor is in place: it is answered then. What we
// hold is given without a coordinator, too; that we hold something else is said once we know that it is the newest.
void Site::State::answer_fetches() {
  if (!anchor || membership == SitePhase::kInstalling || round.phase == RoundPhase::kApplying) return;
  const auto held = [this](const wire::FetchAnchor& fetch) {
    return fetch.run == anchor->run && fetch.round == anchor->round;
  };
  for (auto entry = fetches.begin(); entry != fetches.end();) {
    auto& [link, waiting] = *entry;
    for (const wire::FetchAnchor& fetch : waiting) {
      if (held(fetch)) out.emplace_back(SendAnchor{fetch, link});
    }
    std::erase_if(waiting, held);
    if (!waiting.empty() && membership == SitePhase::kActive) {
      out.emplace_back(Send{link, wire::AnchorMoved{anchor->run, anchor->round}});
      waiting.clear();
    }
    entry = waiting.empty() ? fetches.erase(entry) : std::next(entry);
  }
}

void Site::State::on_peers_tick() {
  for (auto& [site, dial] : peer_dials) {
    if (!dial.dial_out || now < dial.at) continue;
    dial.dial_out = false;
    dial.last_reason = "no connection within " + in_seconds(kDialLimit);
  }
  std::vector<LinkId> silent;
  for (const auto& [link, peer] : peers) {
    if (peer.state != PeerState::kUsable && now - peer.since >= kHelloLimit) silent.push_back(link);
  }
  for (const LinkId link : silent) {
    const PeerLink& peer = peers.at(link);
    hang_up_peer(link, peer.state == PeerState::kUnlisted
                           ? "the coordinator does not list " + json_quote(peer.name) + " as a member"
                           : "no Hello within " + in_seconds(kHelloLimit));
  }
  dial_everyone();
  pursue_installation();
  pursue_optimizer();
  pursue_links();
  // A dial nobody wants any more leaves nothing to wait for.
  for (auto dial = peer_dials.begin(); dial != peer_dials.end();) {
    dial = !dial->second.dial_out && now >= dial->second.at ? peer_dials.erase(dial) : std::next(dial);
  }
}

}  // namespace collab::protocol
