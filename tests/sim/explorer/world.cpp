#include "tests/sim/explorer/world.h"

#include <algorithm>

#include "core/protocol/agreement/quorum.h"
#include "core/protocol/formatting.h"
#include "core/wire/encoding.h"
#include "tests/unit/protocol/harness.h"

namespace collab::sim {

using namespace protocol;

namespace {

constexpr Duration kProgressLimit = std::chrono::seconds(250);      // for what can come
constexpr Duration kShortProgressLimit = std::chrono::seconds(30);  // for what should not
constexpr std::uint32_t kNobody = 1'000;
constexpr std::uint32_t kMostTicksAtOnce = 1'000;
constexpr wire::Offer kFirst{RunId{7}, RoundId{0}, kRight};

// Waits are short, so that few heartbeats lie between one thing and the next; a quarter of the grace is several of
// them.
CoordinatorConfig config_of(std::uint32_t candidate) {
  CoordinatorConfig config;
  config.swarm = "swarm";
  config.fresh_run = RunId{1'000ULL * (candidate + 1)};
  config.heartbeat = std::chrono::seconds(2);
  config.link_grace = std::chrono::seconds(20);
  config.join_timeout = std::chrono::seconds(60);
  config.round_timeout = std::chrono::seconds(30);
  config.straggler_grace = std::chrono::seconds(5);
  return config;
}

}  // namespace

std::optional<Start> start_from(std::string_view name) {
  if (name == "agreed") return Start::kAgreed;
  if (name == "split") return Start::kSplit;
  if (name == "joining") return Start::kJoining;
  if (name == "fresh") return Start::kFresh;
  return std::nullopt;
}

World::World(const Beginning& setup) : setup_(setup), ledger_(setup.fragments) {
  for (std::uint32_t i = 0; i < kCandidates; ++i) {
    candidates_[i].name = "candidate" + std::to_string(i);
    candidates_[i].machine.emplace(config_of(i));
  }
  for (std::uint32_t i = 0; i < kSites; ++i) sites_[i].name = "site" + std::to_string(i);
  for (std::uint32_t i = 0; i < kSites; ++i) begin_as(i);
}

void World::begin_as(std::uint32_t site) {
  const Start start = setup_.start;
  Process& process = sites_[site];
  process.begins = true;
  process.anchor.offer.digest = kRight;
  if (start == Start::kSplit && site > 0) process.unreachable.insert(0);
  std::vector<std::string> names;
  const std::uint32_t members = start == Start::kFresh ? 0 : start == Start::kJoining ? kSites - 1 : kSites;
  for (std::uint32_t i = 0; i < members; ++i) names.push_back(sites_[i].name);
  if (site >= members) return;
  process.disk = member_of(process.name, kFirst, voters_of(names)).report.record;
  process.anchor = {kFirst, {TermId{}, voters_of(names)}};
  ledger_.begin(kFirst, voters_of(names));
}

// ---- turns -----------------------------------------------------------------------------------------

bool World::is_ready(const Process& site, Kind kind) const {
  switch (kind) {
    case Kind::kBegin: return site.begins;
    case Kind::kDial: return !site.dials.empty();
    case Kind::kWrite: return !site.writes.empty();
    case Kind::kData:
      return std::ranges::any_of(site.data, [&](const Data& data) { return can_be_handled(site, data); });
    case Kind::kTrain: return site.training && site.anchor.offer.round.value < rounds() && now_ >= site.trains_until;
    case Kind::kUp:
    case Kind::kDown: break;
  }
  return false;
}

std::vector<World::Source> World::on_their_way() const {
  std::vector<Source> sources;
  for (std::uint32_t i = 0; i < kSites; ++i) {
    for (const Kind kind : {Kind::kBegin, Kind::kDial, Kind::kWrite, Kind::kData, Kind::kTrain}) {
      if (is_ready(sites_[i], kind)) sources.push_back({i, kind});
    }
  }
  for (const auto& [id, link] : links_) {
    if (!link.up.empty()) sources.push_back({line_of(id), Kind::kUp});
    if (!link.down.empty()) sources.push_back({line_of(id), Kind::kDown});
  }
  return sources;
}

std::vector<World::Source> World::in_turn() const {
  const std::vector<Source> all = on_their_way();
  const auto waits = [this](Wait wait) {
    return [this, wait](const Source& source) {
      const auto held = held_back_.find(source);
      return held != held_back_.end() && held->second >= wait;
    };
  };
  std::vector<Source> turn;
  std::ranges::copy_if(all, std::back_inserter(turn), std::not_fn(waits(Wait::kForOthers)));
  if (turn.empty()) std::ranges::copy_if(all, std::back_inserter(turn), std::not_fn(waits(Wait::kForTimer)));
  if (last_) std::ranges::rotate(turn, std::ranges::upper_bound(turn, *last_));
  return turn;
}

// Sites that waited for the others no longer need to once it is their turn.
void World::release() {
  const std::vector<Source> turn = in_turn();
  if (turn.empty() || held_back_.count(turn.front()) == 0) return;
  std::erase_if(held_back_, [](const auto& entry) { return entry.second == Wait::kForOthers; });
}

bool World::step() {
  release();
  const std::vector<Source> turn = in_turn();
  ++steps_;
  if (turn.empty()) return fire_timer();
  if (log) say(std::to_string(steps_ - 1) + "  " + text_for(turn.front()));
  last_ = turn.front();
  handle(turn.front());
  drop_dead_links();
  return true;
}

void World::handle(const Source& source) {
  const auto site = static_cast<std::uint32_t>(source.line);
  switch (source.kind) {
    case Kind::kBegin: return begin_site(site);
    case Kind::kDial: return connect(site);
    case Kind::kWrite: return write_record(site);
    case Kind::kData: return handle_data(site);
    case Kind::kTrain: return train(site);
    case Kind::kUp: return carry(link_of(source), true);
    case Kind::kDown: return carry(link_of(source), false);
  }
}

// The one that is due first.
bool World::fire_timer() {
  TimePoint due = kNever;
  std::uint32_t whose = 0;
  const auto look = [&](TimePoint at, std::uint32_t machine) {
    if (at < due) std::tie(due, whose) = std::tie(at, machine);
  };
  for (std::uint32_t i = 0; i < kCandidates; ++i) {
    if (candidates_[i].machine) look(candidates_[i].machine->next_deadline(), kSites + i);
  }
  for (std::uint32_t i = 0; i < kSites; ++i) {
    if (sites_[i].machine) look(sites_[i].machine->next_deadline(), i);
    if (sites_[i].training && sites_[i].trains_until > now_) look(sites_[i].trains_until, kNobody);
  }
  std::erase_if(held_back_, [](const auto& entry) { return entry.second == Wait::kForTimer; });
  if (due == kNever) return !on_their_way().empty();
  ticks_at_once_ = due > now_ ? 0 : ticks_at_once_ + 1;
  now_ = std::max(now_, due);
  const std::string name = whose == kNobody ? "nobody"
                           : whose < kSites ? sites_[whose].id()
                                            : candidates_[whose - kSites].name;
  if (ticks_at_once_ > kMostTicksAtOnce) ledger_.fail(name + " asks for ticks without end");
  if (log) say(std::to_string(steps_ - 1) + "  a timer of " + name + ", at " + in_seconds(now_.time_since_epoch()));
  if (whose == kNobody) return true;
  whose < kSites ? tell(whose, Tick{}) : tell_candidate(whose - kSites, Tick{});
  drop_dead_links();
  return true;
}

// ---- departures ------------------------------------------------------------------------------------

// The presence of the others changes nothing by itself.
bool World::is_noise(const Source& source) const {
  if (source.kind != Kind::kUp && source.kind != Kind::kDown) return false;
  const Link& link = links_.at(link_of(source));
  const Parcel& next = source.kind == Kind::kUp ? link.up.front() : link.down.front();
  return next.message && (std::holds_alternative<wire::Heartbeat>(*next.message) ||
                          std::holds_alternative<wire::Notice>(*next.message));
}

std::string World::choices() const {
  const std::vector<Source> turn = in_turn();
  if (turn.empty() || is_noise(turn.front())) return {};
  return (turn.size() > 1 ? "dD" : "D") + faults_of(turn.front());
}

// A process that dies between two of its steps dies before the second: that makes no difference.
std::string World::faults_of(const Source& source) const {
  if (source.kind == Kind::kBegin) return {};
  if (source.kind == Kind::kUp) {
    const Link& link = links_.at(link_of(source));
    const bool closed = !link.up.front().message;
    return candidates_[link.candidate].machine ? (closed || link.inquiry ? "k" : "kx") : "";
  }
  std::uint32_t site = static_cast<std::uint32_t>(source.line);
  bool breaks = false;
  if (source.kind == Kind::kDown) {
    const Link& link = links_.at(link_of(source));
    site = link.site;
    if (link.life != sites_[site].life) return {};
    breaks = link.down.front().message.has_value() && !link.inquiry;
  }
  if (!sites_[site].machine) return {};
  return std::string("krlq") + (sites_[site].writes.empty() ? "" : "w") + (breaks ? "x" : "");
}

void World::depart(char how) {
  release();
  const std::vector<Source> turn = in_turn();
  ++steps_;
  if (turn.empty()) return;
  if (log) say(std::to_string(steps_ - 1) + how + " instead of: " + text_for(turn.front()));
  if (how == 'd') {
    last_ = turn.front();
  } else if (how == 'D') {
    held_back_[turn.front()] = turn.size() > 1 ? Wait::kForOthers : Wait::kForTimer;
  } else {
    befall(turn.front(), how);
    drop_dead_links();
  }
}

// ---- verdicts --------------------------------------------------------------------------------------

bool World::is_done() const {
  std::set<RunId> runs;
  for (const Process& site : sites_) {
    if (site.dead || site.left) continue;
    const bool done = site.machine && site.training && site.anchor.offer.round.value >= rounds();
    if (!done) return false;
    runs.insert(site.anchor.offer.run);
  }
  return runs.size() == 1;
}

bool World::can_agree() const {
  const bool led = std::ranges::any_of(candidates_, [](const Candidate& c) { return c.machine.has_value(); });
  const Quorum quorum = quorum_of(ledger_.voters(), [this](const wire::Voter& voter) {
    const auto site = index_of(voter.name);
    return site && !sites_[*site].dead && !sites_[*site].left ? Presence::kByName : Presence::kAbsent;
  });
  // More than half of the sites that begin must come.
  const auto alive = std::ranges::count_if(sites_, [](const Process& site) { return !site.dead && !site.left; });
  if (quorum.voters == 0) return led && 2 * static_cast<std::uint32_t>(alive) > kSites;
  return led && alive > 0 && quorum.can_accept();
}

bool World::is_stuck() const { return now_ - last_progress_ > (can_agree() ? kProgressLimit : kShortProgressLimit); }

std::vector<std::string> World::broken() const {
  std::vector<std::string> all = invariants_.broken();
  all.insert(all.end(), ledger_.broken().begin(), ledger_.broken().end());
  return all;
}

// ---- texts -----------------------------------------------------------------------------------------

std::string World::text_for(const Source& source) const {
  if (source.kind == Kind::kUp || source.kind == Kind::kDown) {
    const Link& link = links_.at(link_of(source));
    const bool up = source.kind == Kind::kUp;
    const Parcel& next = up ? link.up.front() : link.down.front();
    const std::string what = next.message ? std::string(wire::name_of(*next.message)) : "the end of the link";
    const std::string from = up ? sites_[link.site].name : candidates_[link.candidate].name;
    const std::string to = up ? candidates_[link.candidate].name : sites_[link.site].name;
    return to + " gets " + what + " from " + from + " (link " + std::to_string(link_of(source).value) + ")";
  }
  const std::string& name = sites_[source.line].name;
  switch (source.kind) {
    case Kind::kBegin: return name + " begins";
    case Kind::kDial: return name + " dials candidate" + std::to_string(sites_[source.line].dials.front().candidate);
    case Kind::kWrite: return name + "'s record is durable";
    case Kind::kData: return name + "'s data plane";
    case Kind::kTrain: return name + " has trained";
    case Kind::kUp:
    case Kind::kDown: break;
  }
  return {};
}

std::string World::story() const {
  std::string text;
  for (const Process& site : sites_) {
    const std::string state = site.dead      ? "dead"
                              : site.left    ? "has left"
                              : site.machine ? site.machine->waiting_for(now_)
                                             : "down";
    text += site.name + ", round " + std::to_string(site.anchor.offer.round.value) + " of run " +
            std::to_string(site.anchor.offer.run.value) + ": " + state + "\n";
  }
  for (const Candidate& candidate : candidates_) {
    text += candidate.name + ": " + (candidate.machine ? candidate.machine->status_json(now_) : "dead") + "\n";
  }
  return text;
}

}  // namespace collab::sim
