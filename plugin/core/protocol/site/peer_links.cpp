#include "core/protocol/site/peer_links.h"

#include <algorithm>
#include <vector>

#include "core/base/text.h"
#include "core/protocol/site/site_parts.h"
#include "core/wire/encoding.h"

namespace collab::protocol {
namespace {

constexpr Duration kDialLimit = std::chrono::seconds(15);   // for the runtime to answer a dial
constexpr Duration kHelloLimit = std::chrono::seconds(20);  // for the roster to list a site that said Hello
constexpr std::size_t kMaxUnknownPeers = 64;
constexpr std::ptrdiff_t kMaxDials = 64;  // dials that nothing waits for

}  // namespace

std::optional<SiteId> PeerLinks::peer_of(LinkId link) const {
  const auto found = peers_.find(link);
  if (found == peers_.end() || found->second.state < Peer::State::kAnswered) return std::nullopt;
  return found->second.site;
}

std::optional<LinkId> PeerLinks::link_to(SiteId site) const {
  const auto found = link_of_.find(site);
  return found == link_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> PeerLinks::last_reason(SiteId site) const {
  const auto found = dials_.find(site);
  return found == dials_.end() ? std::nullopt : std::optional(found->second.last_reason);
}

bool PeerLinks::cannot_be_dialled() const { return all_->membership.join().address.empty() || dials_out_; }

TimePoint PeerLinks::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [site, dial] : dials_) {
    if (!linked(site)) next = std::min(next, dial.at);
  }
  for (const auto& [link, peer] : peers_) {
    if (peer.state != Peer::State::kUsable) next = std::min(next, later(peer.since, kHelloLimit));
  }
  return next;
}

void PeerLinks::Dial::over(TimePoint now) {
  out = false;
  at = later(now, backoff);
  backoff = std::min(2 * backoff, kLastBackoff);
}

bool PeerLinks::is_in_roster(const Peer& peer) const {
  const wire::Member* const member = all_->roster.find(peer.site);
  if (!all_->membership.self() || member == nullptr || member->name != peer.name) return false;
  return peer.state == Peer::State::kUnlisted || member->address == peer.address;
}

bool PeerLinks::is_authenticated(const Peer& peer) const {
  return is_in_roster(peer) && all_->roster.is_key_of(peer.site, peer.key);
}

void PeerLinks::on_roster(const wire::Roster& update) {
  if (update.term < all_->acceptor.term()) return;
  all_->roster.replace(update.members);
  std::vector<LinkId> gone;
  std::vector<LinkId> arrived;
  for (const auto& [link, peer] : peers_) {
    if (peer.state >= Peer::State::kAnswered && !is_in_roster(peer)) gone.push_back(link);
    if (peer.state == Peer::State::kUnlisted && is_authenticated(peer)) arrived.push_back(link);
  }
  for (const LinkId link : gone) close_link(link, "the roster does not list " + peers_.at(link).name + " any more");
  for (const LinkId link : arrived) answer(link);
  std::erase_if(dials_, [this](const auto& entry) { return !all_->roster.lists(entry.first); });
  dial_everyone();
  pursue();
}

// The keys come before the roster that lists the new members.
void PeerLinks::on_keys(const wire::Keys& told) {
  for (const wire::Key& each : told.keys) {
    all_->roster.learn(each);
    std::vector<LinkId> arrived;
    for (const auto& [link, peer] : peers_) {
      if (peer.site != each.site) continue;
      if (peer.state == Peer::State::kGreeting) greet(link);  // the peer may know only the new key
      if (peer.state == Peer::State::kUnlisted && is_authenticated(peer)) arrived.push_back(link);
    }
    for (const LinkId link : arrived) answer(link);
  }
}

const PeerLinks::Peer* PeerLinks::on_message(LinkId link, const std::string& what) {
  const auto peer = peers_.find(link);
  if (peer == peers_.end() || peer->second.state < Peer::State::kAnswered) {
    const std::string why = what + " came before Hello";
    if (peer != peers_.end()) {
      close_link(link, why);
    } else {
      all_->out.emplace_back(CloseLink{link, why});
    }
    return nullptr;
  }
  if (peer->second.state == Peer::State::kAnswered) use(link);
  const auto still = peers_.find(link);
  return still == peers_.end() ? nullptr : &still->second;  // the other link to the same site may have been kept
}

void PeerLinks::on_connected(const PeerConnected& event) {
  Dial& dial = dials_[event.site];
  dial.over(all_->now);
  if (!all_->membership.self() || !all_->roster.lists(event.site)) {
    dials_.erase(event.site);
    all_->out.emplace_back(
        CloseLink{event.link, "site " + std::to_string(event.site.value) + " is no longer a member"});
    return;
  }
  if (linked(event.site)) {  // the site has dialled us meanwhile, and the exchange may use that link
    all_->out.emplace_back(CloseLink{event.link, "there is a link with " + all_->name_of(event.site) + " already"});
    return;
  }
  const std::string& address = all_->roster.find(event.site)->address;
  peers_[event.link] =
      Peer{Peer::State::kGreeting, event.site, all_->name_of(event.site), address, {}, true, all_->now};
  greet(event.link);
}

void PeerLinks::on_dial_failed(SiteId site, const std::string& why) {
  const auto found = dials_.find(site);
  if (found == dials_.end()) return;
  found->second.over(all_->now);
  found->second.last_reason = why;
}

void PeerLinks::on_notice(const wire::Notice& notice) {
  dials_out_ = dials_out_ || notice.event == kDialOut;
  dial_everyone();
}

void PeerLinks::on_hello(LinkId link, const wire::Hello& hello) {
  const auto [found, fresh] = peers_.try_emplace(link);
  Peer& peer = found->second;
  if (fresh) peer.since = all_->now;
  if (!fresh && peer.state > Peer::State::kUnlisted) return;
  const std::string who = json_quote(hello.name) + " (site " + std::to_string(hello.site.value) + ")";
  if (hello.swarm != all_->membership.join().swarm) {
    return close_link(link, who + " belongs to the swarm " + json_quote(hello.swarm) + ", this site to " +
                                json_quote(all_->membership.join().swarm));
  }
  if (hello.site == all_->membership.self())
    return close_link(link, who + " claims the number of this site, " + all_->membership.join().site);
  if (peer.dialled) {
    if (hello.site != peer.site || hello.name != peer.name) {
      return close_link(link,
                        "dialled " + peer.name + ", reached " + who + ": is its address right (COLLAB_ADVERTISE)?");
    }
    if (!is_in_roster(peer)) return close_link(link, peer.name + " is no longer a member");
    if (!is_authenticated(peer) || hello.key != peer.key)
      return close_link(link, who + " does not prove that it is that site");
    all_->out.emplace_back(Send{link, wire::Heartbeat{0, true}});
    return use(link);
  }
  peer.site = hello.site;
  peer.name = hello.name;
  peer.key = hello.key;
  if (is_authenticated(peer)) return answer(link);
  make_room_for_unknown();
}

// The oldest unknown link makes room. However many unknown sites say Hello, a site about to be listed gets in.
void PeerLinks::make_room_for_unknown() {
  std::size_t unknown = 0;
  auto oldest = peers_.end();
  for (auto entry = peers_.begin(); entry != peers_.end(); ++entry) {
    if (entry->second.state != Peer::State::kUnlisted) continue;
    ++unknown;
    if (oldest == peers_.end() || entry->second.since < oldest->second.since) oldest = entry;
  }
  if (unknown > kMaxUnknownPeers) close_link(oldest->first, "too many links of unknown sites");
}

void PeerLinks::greet(LinkId link) {
  Peer& peer = peers_.at(link);
  if (const Digest* const key = all_->roster.key_of(peer.site); peer.dialled && key != nullptr) peer.key = *key;
  all_->out.emplace_back(Send{link, wire::Hello{all_->membership.join().swarm, all_->acceptor.term(),
                                                *all_->membership.self(), all_->membership.join().site, peer.key}});
}

void PeerLinks::answer(LinkId link) {
  Peer& peer = peers_.at(link);
  peer.state = Peer::State::kAnswered;
  peer.address = all_->roster.find(peer.site)->address;
  peer.since = all_->now;
  greet(link);
}

void PeerLinks::use(LinkId link) {
  Peer& peer = peers_.at(link);
  const SiteId site = peer.site;
  if (const auto other = link_of_.find(site); other != link_of_.end()) {
    const auto by_the_higher = [&](const Peer& p) { return p.dialled == (*all_->membership.self() > site); };
    const LinkId old = other->second;
    if (by_the_higher(peers_.at(old)) && !by_the_higher(peer)) {
      return close_link(link, "there is another link between " + all_->membership.join().site + " and " + peer.name);
    }
    peer.state = Peer::State::kUsable;
    other->second = link;
    return close_link(old, "replaced by another link between " + all_->membership.join().site + " and " + peer.name);
  }
  peer.state = Peer::State::kUsable;
  link_of_[site] = link;
  pursue();
}

void PeerLinks::pursue() {
  all_->installation.pursue();
  all_->optimizer.pursue();
  all_->round.pursue_links();
}

// For links that this site ends. forget() is also for links that end by themselves.
void PeerLinks::close_link(LinkId link, const std::string& why) {
  all_->out.emplace_back(CloseLink{link, why});
  forget(link, why);
}

void PeerLinks::close_link_to(SiteId site, const std::string& why) {
  if (const auto link = link_to(site)) close_link(*link, why);
}

void PeerLinks::close_each_link(const std::string& why) {
  while (!peers_.empty()) close_link(peers_.begin()->first, why);
}

void PeerLinks::end(const std::string& why) {
  for (const auto& [link, peer] : peers_) all_->out.emplace_back(CloseLink{link, why});
  peers_.clear();
  link_of_.clear();
}

void PeerLinks::forget(LinkId link, const std::string& why) {
  const auto found = peers_.find(link);
  if (found == peers_.end()) return;
  const Peer peer = found->second;
  peers_.erase(found);
  all_->held.forget(link);
  if (const auto current = link_of_.find(peer.site); current != link_of_.end() && current->second == link)
    link_of_.erase(current);
  all_->installation.link_lost(peer.site, link);
  if (peer.state != Peer::State::kUsable) return;
  all_->optimizer.link_lost(link, why);
  all_->round.link_lost(peer.site, why);
}

bool PeerLinks::dial(SiteId site) {
  const wire::Member* const member = all_->roster.find(site);
  if (member == nullptr || member->address.empty() || linked(site)) return false;
  for (const auto& [link, peer] : peers_) {
    if (peer.dialled && peer.site == site) return false;  // connected; its Hello is on its way
  }
  Dial& dial = dials_[site];
  if (dial.out || (dial.at != kNever && all_->now < dial.at)) return false;
  dial.out = true;
  dial.at = later(all_->now, kDialLimit);
  all_->out.emplace_back(DialPeer{site, member->address});
  return true;
}

// A dial without an answer ends only after a while. So the sites are dialled in turn.
void PeerLinks::dial_everyone() {
  if (!all_->membership.self() || !cannot_be_dialled()) return;
  auto out =
      std::ranges::count_if(dials_, [](const auto& each) { return each.second.out; }) +
      std::ranges::count_if(peers_, [](const auto& each) { return each.second.state == Peer::State::kGreeting; });
  const auto& members = all_->roster.members();
  auto next = members.lower_bound(next_to_dial_);
  for (std::size_t looked = 0; looked < members.size() && out < kMaxDials; ++looked, ++next) {
    if (next == members.end()) next = members.begin();
    const SiteId site = next->first;
    if (site == *all_->membership.self() || !dial(site)) continue;
    next_to_dial_ = SiteId{site.value + 1};
    ++out;
  }
}

void PeerLinks::on_tick() {
  for (auto& [site, dial] : dials_) {
    if (!dial.out || all_->now < dial.at) continue;
    dial.out = false;
    dial.last_reason = "no connection within " + in_seconds(kDialLimit);
  }
  std::vector<LinkId> silent;
  for (const auto& [link, peer] : peers_) {
    if (peer.state != Peer::State::kUsable && all_->now - peer.since >= kHelloLimit) silent.push_back(link);
  }
  for (const LinkId link : silent) {
    const Peer& peer = peers_.at(link);
    close_link(link, peer.state == Peer::State::kUnlisted
                         ? "the coordinator does not list " + json_quote(peer.name) + " as a member"
                         : "no Hello within " + in_seconds(kHelloLimit));
  }
  dial_everyone();
  pursue();
  // A dial that is no longer wanted leaves nothing to wait for.
  std::erase_if(dials_, [this](const auto& entry) { return !entry.second.out && all_->now >= entry.second.at; });
}

}  // namespace collab::protocol
