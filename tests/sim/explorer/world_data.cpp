#include <algorithm>

#include "core/base/digest.h"
#include "core/protocol/agreement/attempt.h"
#include "tests/sim/explorer/world.h"

namespace collab::sim {

using namespace protocol;

namespace {

bool same_attempt(const std::optional<wire::StartAttempt>& start, const wire::StartAttempt& other) {
  return start && std::tie(start->run, start->round, start->attempt) == std::tie(other.run, other.round, other.attempt);
}

bool same_anchor(const wire::Offer& a, const ReceiveAnchor& b) { return a.run == b.run && a.round == b.round; }

}  // namespace

// ---- exchanges -------------------------------------------------------------------------------------

void World::act(std::uint32_t site, const StartExchange& action) {
  Process& process = sites_[site];
  process.mean.reset();
  process.exchange = action.start;
  process.fragment = fragment_of(action.start.round);
  for (const wire::Participant& p : action.start.participants) {
    if (p.site != action.self || p.weight == 0) continue;
    const std::uint64_t from = process.uncounted_from[process.fragment];
    ledger_.contributes(action.start, process.name, {process.id(), from, process.trained});
  }
  for (const wire::Participant& p : action.start.participants) {
    if (p.here || p.weight == 0 || ledger_.has_part(action.start, p)) continue;
    const std::string why = "it was lost before it began";
    at_once_.emplace_back(site, ExchangeFailed{action.start.round, action.start.attempt, p.site, why});
    return;
  }
  complete_exchange(action.start);
}

void World::act(std::uint32_t site, const CancelExchange&) {
  sites_[site].exchange.reset();
  sites_[site].mean.reset();
}

// Once all have begun, all deltas are with the owners, and the means on their way.
void World::complete_exchange(const wire::StartAttempt& start) {
  std::vector<std::uint32_t> members;
  for (const wire::Participant& p : start.participants) {
    if (!p.here) continue;
    const auto member = index_of(p.name);
    if (!member || !same_attempt(sites_[*member].exchange, start)) return;
    members.push_back(*member);
  }
  for (const std::uint32_t member : members) sites_[member].data.emplace_back(Complete{start});
}

bool World::can_be_handled(const Process& site, const Data& data) const {
  const auto* fetch = std::get_if<Fetch>(&data);
  if (fetch == nullptr || !site.wanted) return true;
  const Process& source = sites_[fetch->from];
  const wire::Offer& there = source.anchor.offer;
  if (!source.machine || same_anchor(there, *site.wanted)) return true;
  return there.run == site.wanted->run ? there.round > site.wanted->round : there.run.value != 0;
}

void World::handle_data(std::uint32_t site) {
  Process& process = sites_[site];
  const auto found =
      std::ranges::find_if(process.data, [&](const Data& data) { return can_be_handled(process, data); });
  const Data data = std::move(*found);
  process.data.erase(found);
  if (const auto* lost = std::get_if<PeerLost>(&data)) {
    peers_.erase(lost->link);
    return tell(site, Closed{lost->link, unavailable("reset")});
  }
  if (const auto* complete = std::get_if<Complete>(&data)) {
    if (!same_attempt(process.exchange, complete->start)) return;
    process.exchange.reset();
    process.mean = complete->start;
    return tell(site,
                ExchangeComplete{complete->start.round, complete->start.attempt, ledger_.mean_of(complete->start)});
  }
  const Fetch fetch = std::get<Fetch>(data);
  if (!process.wanted || !sites_[fetch.from].machine) return;
  const Anchor& there = sites_[fetch.from].anchor;
  if (!same_anchor(there.offer, *process.wanted)) {
    return tell(site, Received{fetch.over, wire::AnchorMoved{there.offer.run, there.offer.round}});
  }
  if (there.offer.digest == process.wanted->digest) process.anchor = {there.offer, process.wanted->membership};
  process.wanted.reset();
  std::erase_if(process.data, [](const Data& other) { return std::holds_alternative<Fetch>(other); });
  tell(site, AnchorInPlace{there.offer.run, there.offer.round, there.offer.digest});
}

// ---- anchors ---------------------------------------------------------------------------------------

void World::act(std::uint32_t site, const ApplyCommit& action) {
  Process& process = sites_[site];
  wire::Offer& offer = process.anchor.offer;
  const wire::Commit& commit = action.commit;
  if (!commit.contributors.empty()) {
    const bool whole = process.mean && process.mean->run == commit.run && process.mean->round == commit.round &&
                       process.mean->attempt == commit.attempt;
    if (!whole) return ledger_.fail(process.id() + " applies a mean that it does not have");
    Canon canon(TimePoint{}, {});
    canon.all(offer.digest, ledger_.mean_of(*process.mean));
    offer.digest = hash128(canon.bytes());
  }
  offer.round = commit.round;
  process.anchor.membership = action.membership;
  process.mean.reset();
  if (!commit.contributors.empty() || action.base == Base::kUnfit) moved(process, action.base);
  last_progress_ = now_;
  at_once_.emplace_back(site, Applied{commit.round, offer.digest});
}

void World::act(std::uint32_t site, const KeepAnchor& action) {
  Anchor& anchor = sites_[site].anchor;
  anchor = {{action.run, action.round, anchor.offer.digest}, action.membership};
  at_once_.emplace_back(site, AnchorInPlace{action.run, action.round, anchor.offer.digest});
}

void World::act(std::uint32_t site, const ReceiveAnchor& action) {
  sites_[site].wanted = action;
  sites_[site].mean.reset();
}

void World::act(std::uint32_t site, const AddAnchorSource& action) {
  if (const auto source = index_of(action.name))
    sites_[site].data.emplace_back(Fetch{*source, action.site, action.over});
}

void World::act(std::uint32_t site, const DropAnchorSource& action) {
  std::erase_if(sites_[site].data, [&](const Data& data) {
    const auto* fetch = std::get_if<Fetch>(&data);
    return fetch != nullptr && fetch->id == action.site;
  });
}

void World::act(std::uint32_t site, const StopReceiving&) {
  sites_[site].wanted.reset();
  std::erase_if(sites_[site].data, [](const Data& data) { return std::holds_alternative<Fetch>(data); });
}

// ---- parameters ------------------------------------------------------------------------------------

void World::act(std::uint32_t site, const Rebase& action) { moved(sites_[site], action.base); }
void World::act(std::uint32_t site, const TakeSnapshot&) { sites_[site].snapshot = sites_[site].trained; }

void World::moved(Process& site, Base base) {
  switch (base) {
    case Base::kParameters: site.uncounted_from[site.fragment] = site.trained; break;
    case Base::kUnfit: std::ranges::fill(site.uncounted_from, site.trained); break;
    case Base::kSnapshot:
      if (!site.snapshot) return ledger_.fail(site.id() + " has no snapshot");
      site.uncounted_from[site.fragment] = *site.snapshot;
      break;
    case Base::kOldAnchor: break;
  }
  site.snapshot.reset();
}

}  // namespace collab::sim
