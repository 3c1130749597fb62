#include <algorithm>

#include "core/base/digest.h"
#include "core/base/message_code.h"
#include "core/protocol/agreement/attempt.h"
#include "tests/sim/explorer/world.h"
#include "tests/unit/protocol/harness.h"

namespace collab::sim {

using namespace protocol;

namespace {

constexpr Duration kStep = std::chrono::seconds(1);

Digest digest_of(const wire::Message& message) {
  Canon canon(TimePoint{}, {});
  canon.put(message);
  return hash128(canon.bytes());
}

}  // namespace

// ---- what a site does ------------------------------------------------------------------------------

void World::begin_site(std::uint32_t site) {
  Process& process = sites_[site];
  process.begins = false;
  ++process.life;
  process.trained = process.asked = 0;
  process.uncounted_from.assign(setup_.fragments, 0);
  process.snapshot.reset();
  SiteConfig config;
  for (const Candidate& candidate : candidates_) config.coordinators.push_back(candidate.name);
  config.join_timeout = std::chrono::seconds(60);
  config.round_timeout = std::chrono::seconds(30);
  process.machine.emplace(config);
  wire::Join join = join_of(process.name, kSites);
  join.settings.push_back({"fragments", std::to_string(setup_.fragments)});
  join.offer = process.anchor.offer;
  wire::Record& known = join.report.record;
  known = process.disk;
  if (known.acceptor.value == 0) known.acceptor = acceptor_of(process.name, process.life);
  if (join.offer.run.value != 0) {
    wire::Record with;
    with.promised = process.anchor.membership.promised;
    with.voters = process.anchor.membership.voters;
    protocol::take_membership(known, with, join.offer);
  }
  tell(site, Begin{std::move(join)});
}

void World::connect(std::uint32_t site) {
  Process& process = sites_[site];
  const DialCoordinator dial = process.dials.front();
  process.dials.pop_front();
  const bool cut = !dial.inquiry && process.unreachable.erase(dial.candidate) != 0;
  if (cut || !candidates_[dial.candidate].machine) {
    return tell(site, DialFailed{std::nullopt, unavailable("refused"), dial.inquiry, dial.candidate});
  }
  const LinkId id{++last_link_};
  links_[id] = Link{site, dial.candidate, process.life, dial.inquiry};
  tell(site, CoordinatorConnected{id, dial.inquiry, dial.candidate});
}

void World::write_record(std::uint32_t site) {
  Process& process = sites_[site];
  const Persist persist = std::move(process.writes.front());
  process.writes.pop_front();
  process.disk = persist.record;
  tell(site, Persisted{persist.number, {}});
}

// Two lots of samples at most wait to be counted, and the swarm is no different with more.
void World::train(std::uint32_t site) {
  Process& process = sites_[site];
  process.training = false;
  if (process.trained - std::ranges::min(process.uncounted_from) < 2) ++process.trained;
  tell(site, Trigger{process.trained, process.trained});
}

void World::carry(LinkId id, bool upwards) {
  Link& link = links_.at(id);
  auto& queue = upwards ? link.up : link.down;
  const Parcel parcel = std::move(queue.front());
  queue.pop_front();
  if (!parcel.message) link.up_open = link.down_open = false;
  const Status lost = unavailable("reset");
  if (upwards) {
    if (!candidates_[link.candidate].machine) return;
    tell_candidate(link.candidate, parcel.message ? CoordinatorEvent(Received{id, *parcel.message}) : Closed{id, lost});
  } else if (sites_[link.site].machine && sites_[link.site].life == link.life) {
    tell(link.site, parcel.message ? SiteEvent(Received{id, *parcel.message}) : Closed{id, lost});
  }
}

// ---- the machines ----------------------------------------------------------------------------------

void World::tell(std::uint32_t site, const SiteEvent& event) {
  at_once_.emplace_back(site, event);
  while (!at_once_.empty()) {
    const auto [whom, what] = std::move(at_once_.front());
    at_once_.pop_front();
    tell_now(whom, what);
  }
}

void World::tell_now(std::uint32_t site, const SiteEvent& event) {
  Process& process = sites_[site];
  if (!process.machine) return;
  const std::vector<SiteAction> actions = process.machine->step(now_, event);
  digests_[site].reset();
  invariants_.site_step(process.id(), event, actions);
  for (const SiteAction& action : actions) {
    std::visit([&](const auto& each) { act(site, each); }, action);
  }
}

void World::tell_candidate(std::uint32_t index, const CoordinatorEvent& event) {
  Candidate& candidate = candidates_[index];
  const std::vector<CoordinatorAction> actions = candidate.machine->step(now_, event);
  digests_[kSites + index].reset();
  invariants_.coordinator_step(candidate.name, event, actions);
  for (const CoordinatorAction& action : actions) {
    each_sent(action, [&](LinkId link, const wire::Message& message) {
      sent(link, message);
      return true;
    });
    if (const auto* note = std::get_if<Note>(&action)) {
      if (log) say("      " + candidate.name + ": [" + note->event + "] " + note->text);
    }
    const auto* closing = std::get_if<CloseLink>(&action);
    const auto link = closing != nullptr ? links_.find(closing->link) : links_.end();
    if (link == links_.end()) continue;
    if (std::exchange(link->second.down_open, false)) link->second.down.push_back({});
    link->second.up_open = false;
    link->second.up.clear();
  }
}

void World::sent(LinkId id, const wire::Message& message) {
  const std::size_t before = ledger_.commits();
  if (const auto* start = std::get_if<wire::StartAttempt>(&message)) ledger_.started(*start);
  if (const auto* commit = std::get_if<wire::Commit>(&message)) ledger_.committed(*commit);
  if (const auto* install = std::get_if<wire::InstallAnchor>(&message)) ledger_.installed(*install);
  if (ledger_.commits() > before) last_progress_ = now_;
  const auto link = links_.find(id);
  if (link != links_.end() && link->second.down_open) link->second.down.push_back({message, digest_of(message)});
}

// ---- what a site's machine asks for ----------------------------------------------------------------

void World::act(std::uint32_t site, const Send& action) {
  if (const auto link = links_.find(action.link); link != links_.end()) {
    if (link->second.up_open) link->second.up.push_back({action.message, digest_of(action.message)});
    return;
  }
  const auto peer = peers_.find(action.link);
  if (peer == peers_.end()) return;
  const PeerLink::End& other = peer->second.other(site);
  if (sites_[other.site].life == other.life) at_once_.emplace_back(other.site, Received{action.link, action.message});
}

void World::act(std::uint32_t site, const CloseLink& action) {
  if (const auto link = links_.find(action.link); link != links_.end()) {
    if (std::exchange(link->second.up_open, false)) link->second.up.push_back({});
    link->second.down_open = false;
    link->second.down.clear();
    return;
  }
  const auto peer = peers_.find(action.link);
  if (peer == peers_.end()) return;
  const PeerLink::End& other = peer->second.other(site);
  if (sites_[other.site].life == other.life) {
    at_once_.emplace_back(other.site, Closed{action.link, unavailable("reset")});
  }
  peers_.erase(peer);
}

void World::act(std::uint32_t site, const DialCoordinator& action) { sites_[site].dials.push_back(action); }

// Of the waiting records only the newest is written.
void World::act(std::uint32_t site, const Persist& action) {
  auto& writes = sites_[site].writes;
  sites_[site].asked = action.number;
  if (writes.size() > 1) writes.pop_back();
  writes.push_back(action);
}

void World::act(std::uint32_t site, const DialPeer& action) {
  const auto other = index_of(action.address.substr(0, action.address.find(':')));
  if (!other || !sites_[*other].machine) {
    at_once_.emplace_back(site, DialFailed{action.site, unavailable("refused")});
    return;
  }
  const LinkId id{++last_link_};
  peers_[id] = PeerLink{{site, sites_[site].life}, {*other, sites_[*other].life}};
  at_once_.emplace_back(site, PeerConnected{action.site, id});
}

void World::act(std::uint32_t site, const JoinDone&) { sites_[site].training = true; }
void World::act(std::uint32_t site, const RoundDone&) { sites_[site].training = true; }
void World::act(std::uint32_t site, const RoundSkipped&) {
  sites_[site].training = true;
  sites_[site].trains_until = now_ + kStep;
}

void World::act(std::uint32_t site, const Left&) {
  kill_site(site, 'k');
  sites_[site].dead = false;
  sites_[site].left = true;
}

// A site that cannot go on begins again. But nothing here should stop it from going on.
void World::act(std::uint32_t site, const Failed& action) {
  if (log) say("      " + sites_[site].id() + " FAILS: " + action.why.to_string());
  if (action.why.code() == StatusCode::kInternal || action.why.code() == StatusCode::kCorrupt) {
    ledger_.fail(sites_[site].id() + " fails: " + action.why.to_string());
  }
  kill_site(site, 'r');
}

void World::act(std::uint32_t site, const Note& action) {
  if (log) say("      " + sites_[site].id() + ": [" + action.event + "] " + action.text);
  // A site bears it; but no coordinator here lies.
  if (message_code(action.text) == "round.disagreement") ledger_.fail(sites_[site].id() + ": " + action.text);
}

std::optional<std::uint32_t> World::index_of(const std::string& name) const {
  for (std::uint32_t i = 0; i < kSites; ++i) {
    if (sites_[i].name == name) return i;
  }
  return std::nullopt;
}

}  // namespace collab::sim
