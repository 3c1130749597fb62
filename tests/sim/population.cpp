#include "tests/sim/population.h"

#include <algorithm>

#include "core/protocol/agreement/run_name.h"

namespace collab::sim {

Population::Population(Setting setting, Network& network, Checkers& checkers, SimSite::Log log, Prng& prng)
    : setting_(std::move(setting)),
      network_(network),
      checkers_(checkers),
      log_(std::move(log)),
      prng_(prng),
      begins_(~setting_.seed),
      clocks_(setting_.seed ^ 0xC10C'0000'0000'0000),
      disks_(setting_.seed ^ 0xD15C'0000'0000'0000),
      leaves_(setting_.seed ^ 0x1EAF'E500'0000'0000),
      orders_(setting_.seed ^ 0x04DE'4000'0000'0000),
      claims_(setting_.seed ^ 0xC1A1'0000'0000'0000) {
  if (!setting_.hubs) return;
  std::vector<std::string> hubs;
  for (std::uint32_t i = 0; i < setting_.candidates; ++i) hubs.push_back(address_of(i));
  world_ = std::make_unique<SimWorld>(SimWorld::Options{setting_.seed, setting_.sites, setting_.rounds, std::move(hubs),
                                                        kGrace, kJoinTimeout, setting_.liars},
                                      network, checkers, log_);
}

void Population::begin(std::uint32_t hidden) {
  for (std::uint32_t i = 0; i < setting_.candidates; ++i) start_coordinator(i);
  // At least one can be dialled.
  for (std::uint32_t i = 0; i < setting_.sites; ++i) {
    const std::string name = "site" + std::to_string(i);
    names_.push_back(name);
    const bool chance = hidden_.size() + 1 < setting_.sites && i > 0 && prng_.chance(setting_.nat ? 0.6 : 0.15);
    if (chance && hidden_.size() < hidden) hidden_.insert(name);
    network_.at(TimePoint(seconds(2 * prng_.uniform())), [this, name] { start_site(name, 1); });
  }
  if (setting_.helped) network_.at(TimePoint(seconds(3)), [this] { start_site(kHelper, 1); });
  if (setting_.generations > 1) follow_generations();
}

void Population::join_late() {
  const std::string name = "late" + std::to_string(names_.size() - setting_.sites);
  names_.push_back(name);
  start_site(name, 1);
}

void Population::claim(const std::string& name) {
  claimant_ = name.empty() ? "late" + std::to_string(names_.size() - setting_.sites) : name;
  for (const auto& coordinator : coordinators_) coordinator->distrust(claimant_);
  if (name.empty()) return join_late();
  SimSite& site = *live(name);
  restart(site);
}

void Population::lie(SimSite& site, std::uint64_t seed, TimePoint until) {
  const std::string& name = site.options().name;
  lies_[name] = {seed, until};
  checkers_.invariants.distrust(name);
  site.lie(seed, until);
  network_.at(until, [this, name] {
    SimSite* live = newest_[name];
    if (lies(name) || live->report().over || is_dead(*live)) return;
    end(*live, Death::kProcess);
    busy_until(start_again(name, live->options().generation));
  });
}

bool Population::lies(const std::string& name) const {
  const auto found = lies_.find(name);
  return found != lies_.end() && network_.now() < found->second.second;
}

// The newest that any site here knows, of that generation: earlier ones have names of runs that are over.
wire::Record Population::newest_record(std::optional<std::uint32_t> generation) const {
  wire::Record newest;
  for (const std::string& name : names_) {
    const SimSite* site = live(name);
    if (site == nullptr || name == claimant_) continue;
    if (generation && site->options().generation != *generation) continue;
    wire::Record record = site->record();
    const auto order = [](const wire::Record& r) { return std::pair(r.anchor.round, r.anchor.run); };
    if (newest.anchor.run.value == 0 || order(record) > order(newest)) newest = std::move(record);
  }
  return newest;
}

// ---- sites -----------------------------------------------------------------------------------------

SimSiteOptions Population::options_of(const std::string& name, std::uint32_t generation) {
  SimSiteOptions site;
  const bool hidden = hidden_.count(name) != 0;
  const bool founder = name.starts_with("site") && incarnations_[name] == 0;
  site.name = name;
  site.process = name + "." + std::to_string(++incarnations_[name]);
  site.address = hidden && !setting_.nat ? "" : site.process + ":1";
  site.behind_nat = hidden;
  site.expected_sites = founder ? setting_.sites : 1;
  site.generation = generation;
  site.last_generation = setting_.generations;
  site.elements = setting_.elements;
  site.fragments = setting_.fragments;
  site.data = setting_.data;
  site.save_every = setting_.save_every;
  site.last_round = RoundId{setting_.rounds};
  std::vector<std::string>& addresses = site.config.coordinators;
  if (prng_.chance(0.2)) addresses.emplace_back("nobody:1");
  for (std::uint32_t i = 0; i < setting_.candidates; ++i) addresses.push_back(address_of(i));
  if (setting_.other_orders) {
    for (std::size_t i = addresses.size(); i > 1; --i) std::swap(addresses[i - 1], addresses[orders_.below(i)]);
  }
  site.config.join_timeout = kJoinTimeout;
  site.config.round_timeout = seconds(60);
  site.store = &stores_[{name, generation}];
  if (setting_.slow_disks) {
    site.disk = {seconds(4 * disks_.uniform() * disks_.uniform()), seconds(2 * disks_.uniform())};
  }
  site.mutation = setting_.mutation;
  site.draws_rates = setting_.seed % 4 == 1;
  site.leader_times = setting_.leader_times;
  site.helper = name == kHelper;
  if (!site.helper) site.overlap = setting_.overlap;
  site.resumed = !site.helper && begins_.chance(0.4);
  const bool names = setting_.named_by_sites && !site.helper && (name == setting_.named || begins_.chance(0.5));
  if (names) site.init_from = setting_.named;
  site.seed = prng_.next();
  site.optimizer = setting_.optimizers && !site.helper;
  site.egress_budget = budget_of(name);
  if (founder) {
    site.world = world_.get();
    site.rank = static_cast<std::uint32_t>(std::stoul(name.substr(4)));
  }
  return site;
}

std::uint64_t Population::budget_of(const std::string& name) const {
  if (!setting_.budgets || !name.starts_with("site")) return 0;
  constexpr std::uint64_t kDraw = 0xB0D6'E700'0000'0000;
  const std::uint64_t number = std::stoull(name.substr(4));
  if (number == Prng(setting_.seed ^ kDraw).below(setting_.sites)) return 0;
  Prng draw(setting_.seed ^ kDraw ^ (number + 1));
  if (draw.chance(0.4)) return 0;
  const std::uint64_t round = setting_.elements * sizeof(float) / (setting_.data.codec.up == CodecId::kFp32 ? 1 : 4);
  return round * (1 + draw.below(setting_.rounds));  // about
}

void Population::start_site(const std::string& name, std::uint32_t generation) {
  sites_.push_back(std::make_unique<SimSite>(options_of(name, generation), network_, checkers_, log_));
  SimSite& site = *sites_.back();
  newest_[name] = &site;
  started_[&site] = network_.now();
  set_clock(site.node());
  log(site.options().process, "starts");
  if (is_claimant(site)) site.claim(Claim::draw(claims_, name, newest_record(generation)));
  if (lies(name)) site.lie(lies_[name].first, lies_[name].second);
  site.start();
}

void Population::set_clock(NodeId node) {
  if (!setting_.drift) return;
  network_.set_clock_rate(node, 0.95 + 0.1 * prng_.uniform());
  network_.jump_clock(node, seconds(1e4 * prng_.uniform()));  // clocks count from anywhere
}

// As after a suspension. A candidate's host has another clock.
void Population::jump_clock(SimSite& site, Duration by) {
  network_.jump_clock(site.node(), by);
  if (!setting_.late_candidates || !clocks_.chance(0.5)) return;
  const SimCoordinator& candidate = *candidates_[clocks_.below(candidates_.size())];
  log(candidate.process(), "its clock jumps");
  network_.jump_clock(candidate.node(), seconds(30 * clocks_.uniform() * clocks_.uniform()));
}

SimSite* Population::live(const std::string& name) const {
  const auto found = newest_.find(name);
  return found == newest_.end() || is_dead(*found->second) ? nullptr : found->second;
}

void Population::end(SimSite& site, Death death) {
  dead_.insert(&site);
  death == Death::kProcess ? site.leave_arena() : store_of(site).arena.lose();
  site.kill();
  checkers_.invariants.site_lost(site.options().process);
  network_.kill(site.node(), death == Death::kProcess);
}

TimePoint Population::start_again(const std::string& name, std::uint32_t generation) {
  const TimePoint when = network_.now() + seconds(0.5 + 8 * prng_.uniform());
  network_.at(when, [this, name, generation] { start_site(name, generation); });
  return when;
}

void Population::restart(SimSite& site) {
  end(site, Death::kProcess);
  start_again(site.options().name, site.options().generation);
}

// If something else ends it before it has left, that makes it start again.
void Population::start_again_once_over(SimSite& site) {
  const SimSiteReport& report = site.report();
  if (is_dead(site) || (report.over && !report.returns)) return;
  const TimePoint soon = network_.now() + seconds(0.5);
  busy_until(soon);
  if (!report.over) return network_.at(soon, [this, &site] { start_again_once_over(site); });
  busy_until(start_again(site.options().name, site.options().generation));
}

void Population::crash(SimSite& site, Death death, bool for_good) {
  const bool may_leave = setting_.leavers && death == Death::kProcess && !for_good && !site.options().helper;
  if (may_leave && leaves_.chance(0.4)) {
    if (site.ask_to_leave()) start_again_once_over(site);
    return;
  }
  end(site, death);
  const std::string& name = site.options().name;
  if (for_good) {
    gone_.insert(name);
    return;
  }
  // A script that is started again begins with its first model, one that has checkpoints goes on with the last.
  const bool keeps = prng_.chance(0.8) && !site.options().helper;
  if (!keeps) store_of(site).lose();
  busy_until(start_again(name, keeps ? site.options().generation : 1));
}

// A site that has ended one generation, or is behind, begins the next in another process.
void Population::follow_generations() {
  for (const std::string& name : names_) {
    const SimSite* site = live(name);
    if (site == nullptr || !site->report().over || !site->report().goes_on || is_followed(*site)) continue;
    followed_.insert(site);
    const std::uint32_t next = site->options().helper ? 1 : site->options().generation + 1;
    const Duration after = seconds(site->report().why.ok() ? 0.05 * prng_.uniform() : 5 * prng_.uniform());
    network_.at(network_.now() + after, [this, name, next] { start_site(name, next); });
  }
  network_.at(network_.now() + seconds(0.02), [this] { follow_generations(); });
}

// ---- coordinators ----------------------------------------------------------------------------------

// By the time of its host. That may have been set back since another began: no battery keeps it, or it is a copy.
RunId Population::name_run() {
  constexpr std::chrono::seconds kBegin{1'800'000'000};
  const auto now = kBegin + std::chrono::duration_cast<std::chrono::seconds>(network_.now().time_since_epoch());
  if (!clocks_.chance(0.3)) last_birth_ = std::max(last_birth_, now);
  return protocol::run_name(last_birth_, clocks_.next());
}

void Population::start_coordinator(std::uint32_t candidate) {
  protocol::CoordinatorConfig config;
  config.swarm = "sim";
  config.fresh_run = name_run();
  config.link_grace = kGrace;
  config.forget_after = setting_.forget_after;
  config.straggler_grace = seconds(5);
  config.join_timeout = kJoinTimeout;
  config.round_timeout = seconds(60);
  if (setting_.liars) config.least_standstill = kGrace;
  if (!setting_.named_by_sites) config.init_from = setting_.named;
  const std::string process = "c" + std::to_string(candidate) + "." + std::to_string(coordinators_.size() + 1);
  coordinators_.push_back(std::make_unique<SimCoordinator>(config, process, address_of(candidate), setting_.mutation,
                                                           network_, checkers_, log_, world_.get()));
  coordinators_.back()->distrust(claimant_);
  coordinators_.back()->on_waiting([this, coordinator = coordinators_.back().get()](const std::string& text) {
    if (reader_) reader_(*coordinator, text);
  });
  set_clock(coordinators_.back()->node());
  if (candidates_.size() <= candidate) candidates_.resize(candidate + 1);
  candidates_[candidate] = coordinators_.back().get();
}

void Population::kill_candidate(std::uint32_t candidate, Death death, bool for_good) {
  SimCoordinator* coordinator = candidates_[candidate];
  if (coordinator->dead()) return;
  log(coordinator->process(), "is gone");
  coordinator->kill();
  network_.kill(coordinator->node(), death == Death::kProcess);
  checkers_.invariants.coordinator_lost(coordinator->process());
  if (for_good) {
    lost_candidates_.insert(candidate);
    return;
  }
  const TimePoint when = network_.now() + seconds(0.2 + 20 * prng_.uniform() * prng_.uniform());
  busy_until(when);
  network_.at(when, [this, candidate] { start_coordinator(candidate); });
}

std::uint32_t Population::some_candidate() {
  if (prng_.chance(0.7)) {
    for (std::uint32_t i = 0; i < candidates_.size(); ++i) {
      if (!candidates_[i]->dead() && candidates_[i]->members() > 0) return i;
    }
  }
  return static_cast<std::uint32_t>(prng_.below(candidates_.size()));
}

std::string Population::status() const {
  std::string text;
  for (const SimCoordinator* coordinator : candidates_) {
    text += coordinator->process() + (coordinator->dead() ? " is dead; " : " " + coordinator->status() + " ");
  }
  return text;
}

}  // namespace collab::sim
