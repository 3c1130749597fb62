#include "tests/sim/swarm.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "core/base/digest.h"
#include "tests/sim/sim_coordinator.h"

namespace collab::sim {
namespace {

constexpr std::array<std::pair<Fault, std::string_view>, 15> kFaultNames{{
    {Fault::kCutLink, "cut"},
    {Fault::kCrash, "crash"},
    {Fault::kVanish, "vanish"},
    {Fault::kPause, "pause"},
    {Fault::kSlow, "slow"},
    {Fault::kIsolate, "isolate"},
    {Fault::kNan, "nan"},
    {Fault::kFlipMean, "flip-mean"},
    {Fault::kFlipAnchor, "flip-anchor"},
    {Fault::kOneWay, "one-way"},
    {Fault::kSplit, "split"},
    {Fault::kCoordinator, "coordinator"},
    {Fault::kHang, "hang"},
    {Fault::kLastWords, "last-words"},
    {Fault::kBarrier, "barrier"},
}};

constexpr Duration seconds(double s) { return Duration(static_cast<Duration::rep>(s * 1e6)); }
// Faults happen before this time; from here on the swarm is left alone.
constexpr TimePoint kQuiet = TimePoint(seconds(60));
// Everybody has trained to the end this long after the faults have stopped: twice the limits below, and the rounds.
constexpr Duration kBound = seconds(420);
const std::string kHelper = "helper";
// A run of the largest swarm takes a tenth of this many events: more are a circle nobody waits in.
constexpr std::uint64_t kMostEvents = 3'000'000;

std::string_view name_of(Mutation mutation) {
  switch (mutation) {
    case Mutation::kNone: return "none";
    case Mutation::kForgeDone: return "forge-done";
    case Mutation::kCountTwice: return "count-twice";
    case Mutation::kFlipBit: return "flip-bit";
    case Mutation::kLoseSteps: return "lose-steps";
    case Mutation::kCarryStale: return "carry-stale";
  }
  return "unknown";
}

class Swarm {
 public:
  explicit Swarm(const SwarmOptions& options)
      : options_(options), prng_(options.seed), begins_(~options.seed), network_(draw_network(), prng_.next()) {
    if (options_.sites == 0) options_.sites = 1 + static_cast<std::uint32_t>(prng_.below(6));
    if (options_.candidates == 0) options_.candidates = 1 + static_cast<std::uint32_t>(prng_.below(3));
    if (options_.rounds == 0) options_.rounds = 3 + static_cast<std::uint32_t>(prng_.below(8));
    if (options_.draw_faults) {
      for (const auto& [fault, name] : kFaultNames) {
        if (prng_.chance(0.3)) options_.faults.push_back(fault);
      }
    }
  }

  SwarmResult run() {
    branches_ = options_.seed % 3 == 0;
    helped_ = options_.seed % 5 == 2;
    generations_ = options_.seed % 7 == 3 ? 2 + options_.seed % 2 : 1;
    if (begins_.chance(0.3)) named_ = "site" + std::to_string(begins_.below(options_.sites));
    named_by_sites_ = begins_.chance(0.7);
    if (!named_by_sites_) checkers_.invariants.names_first(named_);
    for (std::uint32_t i = 0; i < options_.candidates; ++i) start_coordinator(i);
    nat_ = options_.seed % 6 == 4;
    // Sites that cannot be dialled; at least one can. Two need a third between them, so nothing happens to that one.
    const std::uint32_t most_hidden = nat_ && options_.faults.empty() ? 2 : 1;
    std::uint32_t hidden = 0;
    for (std::uint32_t i = 0; i < options_.sites; ++i) {
      const bool chance = hidden + 1 < options_.sites && i > 0 && prng_.chance(nat_ ? 0.6 : 0.15);
      const bool hide = chance && hidden < most_hidden;
      hidden += hide ? 1 : 0;
      const std::string name = "site" + std::to_string(i);
      network_.at(TimePoint(seconds(2 * prng_.uniform())),
                  [this, name, hide] { start_site(name, hide, std::nullopt, 1); });
    }
    if (helped_) network_.at(TimePoint(seconds(3)), [this] { start_site(kHelper, false, std::nullopt, 1); });
    if (generations_ > 1) follow_generations();
    if (!options_.faults.empty()) plan_faults();
    const TimePoint end = (options_.faults.empty() ? TimePoint{} : kQuiet) + generations_ * kBound;
    std::uint64_t events = 0;
    while (!finished() && network_.now() < end && checkers_.failures().empty()) {
      if (!network_.run_one()) break;
      if (++events > kMostEvents) checkers_.fail(std::to_string(events) + " events, and no end: " + status());
    }
    judge();
    return result();
  }

 private:
  NetworkOptions draw_network() {
    NetworkOptions network;
    network.delay_min = seconds(0.001 + 0.05 * prng_.uniform());
    network.delay_mean = seconds(0.001 + 0.05 * prng_.uniform());
    network.bytes_per_second = 1e5 + 4e6 * prng_.uniform();
    return network;
  }

  void log(const std::string& who, const std::string& what) {
    std::array<char, 32> time{};
    std::snprintf(time.data(), time.size(), "%10.6f ",
                  static_cast<double>(network_.now().time_since_epoch().count()) / 1e6);
    const std::string line = time.data() + who + " " + what;
    const Digest digest = hash128(std::as_bytes(std::span(line)));
    trace_.add(digest);
    if (options_.verbose) std::printf("%s\n", line.c_str());
  }
  SimSite::Log logger() {
    return [this](const std::string& who, const std::string& what) { log(who, what); };
  }

  [[nodiscard]] static std::string address_of(std::uint32_t candidate) { return "c" + std::to_string(candidate); }

  void start_coordinator(std::uint32_t candidate) {
    protocol::CoordinatorConfig config;
    config.swarm = "sim";
    config.fresh_run = RunId{1000 * ++births_};
    config.link_grace = seconds(10);
    config.straggler_grace = seconds(5);
    config.join_timeout = seconds(60);
    config.round_timeout = seconds(60);
    if (!named_by_sites_) config.init_from = named_;
    if (branches_) config.quorum_timeout = seconds(1 + 12 * prng_.uniform());
    const std::string process = address_of(candidate) + "." + std::to_string(births_);
    coordinators_.push_back(std::make_unique<SimCoordinator>(config, process, address_of(candidate), options_.mutation,
                                                             network_, checkers_, logger()));
    if (candidates_.size() <= candidate) candidates_.resize(candidate + 1);
    candidates_[candidate] = coordinators_.back().get();
  }

  void kill_coordinator(std::uint32_t candidate, bool noticed) {
    SimCoordinator* coordinator = candidates_[candidate];
    if (coordinator->dead()) return;
    log(coordinator->process(), "is gone");
    coordinator->kill();
    network_.kill(coordinator->node(), noticed);
    checkers_.invariants.coordinator_lost(coordinator->process());
    network_.at(network_.now() + seconds(0.2 + 20 * prng_.uniform() * prng_.uniform()),
                [this, candidate] { start_coordinator(candidate); });
  }

  // Mostly the one that has members.
  std::uint32_t some_candidate() {
    if (prng_.chance(0.7)) {
      for (std::uint32_t i = 0; i < candidates_.size(); ++i) {
        if (!candidates_[i]->dead() && candidates_[i]->members() > 0) return i;
      }
    }
    return static_cast<std::uint32_t>(prng_.below(candidates_.size()));
  }

  void start_site(const std::string& name, bool hidden, std::optional<Saved> saved, std::uint32_t generation) {
    SimSiteOptions site;
    site.name = name;
    site.process = name + "." + std::to_string(++processes_[name]);
    site.address = hidden && !nat_ ? "" : site.process;
    site.behind_nat = hidden;
    site.expected_sites = processes_[name] == 1 && name != kHelper ? options_.sites : 1;
    site.generation = generation;
    site.last_generation = generations_;
    site.elements = 1'000 + 1'000 * (options_.seed % 7);
    site.last_round = RoundId{options_.rounds};
    if (prng_.chance(0.2)) site.coordinators.emplace_back("nobody");
    for (std::uint32_t i = 0; i < options_.candidates; ++i) site.coordinators.push_back(address_of(i));
    site.config.coordinators = site.coordinators;
    site.config.join_timeout = seconds(60);
    site.config.round_timeout = seconds(60);
    site.saved = std::move(saved);
    site.mutation = options_.mutation;
    site.draws_rates = options_.seed % 4 == 1;
    site.helper = name == kHelper;
    site.resumed = !site.helper && begins_.chance(0.4);
    if (named_by_sites_ && !site.helper && (name == named_ || begins_.chance(0.5))) site.init_from = named_;
    site.seed = prng_.next();
    sites_.push_back(std::make_unique<SimSite>(site, network_, checkers_, logger()));
    hidden_[name] = hidden;
    log(site.process, "starts");
    sites_.back()->start();
  }

  SimSite* live(const std::string& name) {
    for (auto site = sites_.rbegin(); site != sites_.rend(); ++site) {
      if ((*site)->options().name == name) return dead_.count((*site).get()) != 0 ? nullptr : site->get();
    }
    return nullptr;
  }

  // ---- faults ---------------------------------------------------------------------------------------

  void plan_faults() {
    const auto count = 1 + prng_.below(2 * options_.faults.size() + 2);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Fault fault = options_.faults[prng_.below(options_.faults.size())];
      const std::uint64_t whose = prng_.below(options_.sites + (helped_ ? 1 : 0));
      const std::string name = whose == options_.sites ? kHelper : "site" + std::to_string(whose);
      const Duration when = seconds(1 + 0.8 * prng_.uniform() * static_cast<double>(options_.rounds));
      network_.at(TimePoint(when), [this, fault, name] { inflict(fault, name); });
    }
    network_.at(kQuiet, [this] { quiet_ = true; });
    watch();
  }

  void inflict(Fault fault, const std::string& name) {
    SimSite* site = live(name);
    if (site == nullptr || site->report().over) return;
    ++faults_;
    log(site->options().process, "FAULT " + std::string(sim::name_of(fault)));
    const TimePoint until = network_.now() + seconds(0.5 + 14 * prng_.uniform() * prng_.uniform());
    switch (fault) {
      case Fault::kCutLink: return network_.cut_links(site->node(), prng_);
      case Fault::kCrash: return crash(*site, true);
      case Fault::kVanish: return crash(*site, false);
      case Fault::kPause: return network_.pause(site->node(), until);
      case Fault::kSlow: return network_.slow(site->node(), 2 + 20 * prng_.uniform(), until);
      case Fault::kIsolate: return network_.isolate(site->node(), until);
      case Fault::kNan: return site->poison_parameters();
      case Fault::kFlipMean: return site->flip_mean_once();
      case Fault::kFlipAnchor: return site->flip_anchor_once();
      case Fault::kOneWay: return network_.mute(site->node(), until);
      case Fault::kSplit: return split();
      case Fault::kCoordinator: return kill_coordinator(some_candidate(), prng_.chance(0.7));
      case Fault::kHang: return network_.pause(candidates_[some_candidate()]->node(), until);
      case Fault::kLastWords: return last_words();
      case Fault::kBarrier: return stand(name, until);
    }
  }

  void split() {
    std::vector<bool> side;
    for (std::size_t node = 0; node < sites_.size() + coordinators_.size(); ++node) side.push_back(prng_.chance(0.5));
    network_.split(side, network_.now() + seconds(1 + 25 * prng_.uniform()));
  }

  void last_words() {
    const std::uint32_t candidate = some_candidate();
    SimCoordinator* coordinator = candidates_[candidate];
    coordinator->die_at_commit([this, candidate](SiteId member) {
      log("swarm", "FAULT the commit reaches site " + std::to_string(member.value) + " only");
      kill_coordinator(candidate, prng_.chance(0.5));
      network_.at(network_.now() + seconds(0.3), [this, member] {
        for (const auto& site : sites_) {
          if (dead_.count(site.get()) == 0 && !site->report().over && site->self() == member) return crash(*site, true);
        }
      });
    });
  }

  // Whoever is ready is parted from it at once; nothing may come of that but a round without it, or none.
  void stand(const std::string& name, TimePoint until) {
    protocol::InCall barrier{std::string(protocol::kStandsStill) + "all_reduce", {}, true};
    for (std::uint32_t i = 0; i < options_.sites; ++i) barrier.awaits.insert("site" + std::to_string(i));
    barrier.awaits.erase(name);
    SimCoordinator* coordinator = candidates_[some_candidate()];
    coordinator->tell_calls({{{name, barrier}}});
    network_.at(until, [coordinator] { coordinator->tell_calls({}); });
  }

  void crash(SimSite& site, bool noticed) {
    dead_.insert(&site);
    site.kill();
    checkers_.invariants.site_lost(site.options().process);
    network_.kill(site.node(), noticed);
    const std::string name = site.options().name;
    std::optional<Saved> saved;
    if (prng_.chance(0.7) && !site.options().helper) saved = site.saved();
    // A script that is started again begins with its first model, one that has checkpoints goes on with the last.
    const std::uint32_t generation = saved ? site.options().generation : 1;
    network_.at(network_.now() + seconds(0.5 + 8 * prng_.uniform()),
                [this, name, saved, generation] { start_site(name, hidden_[name], saved, generation); });
  }

  // A site that has ended one generation, or is behind, begins the next in another process.
  void follow_generations() {
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      SimSite& site = *sites_[i];
      if (!site.report().over || !site.report().goes_on || followed_.count(&site) != 0) continue;
      if (dead_.count(&site) != 0) continue;
      followed_.insert(&site);
      const std::string name = site.options().name;
      const std::uint32_t next = site.options().generation + 1;
      const Duration after = seconds(site.report().why.ok() ? 0.05 * prng_.uniform() : 5 * prng_.uniform());
      network_.at(network_.now() + after, [this, name, next] { start_site(name, hidden_[name], std::nullopt, next); });
    }
    network_.at(network_.now() + seconds(0.02), [this] { follow_generations(); });
  }

  // No majority of those it needs for a round will ever be here: they have ended, or too few of them have kept their
  // memory. It trains on alone, or is told that nobody comes.
  bool left_alone(const SimSite& site) {
    const SimSiteReport& report = site.report();
    if (!report.joined) {  // started again: others wait, and it would not make them a majority
      const bool others = std::any_of(sites_.begin(), sites_.end(), [&](const auto& other) {
        return dead_.count(other.get()) == 0 && other->report().joined && left_alone(*other);
      });
      if (others) return true;
    }
    std::vector<std::vector<wire::Voter>> needed{site.voters()};
    std::optional<wire::Form> newest;
    for (const auto& other : sites_) {
      const std::optional<wire::Form>& form = other->report().form;
      if (dead_.count(other.get()) != 0 || other->report().over || !form) continue;
      if (form->run != report.run || form->round.value != report.round.value + 1) continue;
      if (!newest || form->attempt > newest->attempt) newest = form;
    }
    if (newest) needed.push_back(newest->voters);
    return std::any_of(needed.begin(), needed.end(), [this](const auto& voters) { return !can_agree(voters); });
  }

  bool can_agree(const std::vector<wire::Voter>& voters) {
    std::size_t here = 0;
    std::size_t remember = 0;
    for (const wire::Voter& voter : voters) {
      const SimSite* other = live(voter.name);
      const bool ended = other != nullptr && other->report().over && !other->report().failed;
      here += ended ? 0 : 1;
      remember += other != nullptr && !other->report().over && other->report().joined ? 1 : 0;
    }
    const bool known = 2 * remember >= voters.size() || here == voters.size() || remember == 0;
    return voters.empty() || (2 * here > voters.size() && known);
  }

  // It has forgotten everything, holds no anchor, nor does anybody else, and whom it is to begin with has ended.
  bool waits_in_vain(const SimSite& site) {
    const SimSite* named = named_.empty() ? nullptr : live(named_);
    const bool ended = named != nullptr && named->report().over;
    return ended && site.report().failed && !site.report().joined &&
           site.report().why.message().find("COLLAB_INIT_FROM") != std::string::npos;
  }

  [[nodiscard]] bool restarts() const {
    return !options_.faults.empty() && network_.now() < last_disturbance_ + seconds(200);
  }

  // A process that fails while faults go on is started again, as its user would.
  void watch() {
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      SimSite& site = *sites_[i];
      if (!site.report().failed || dead_.count(&site) != 0) continue;
      if (!restarts() && !site.options().helper) continue;
      ++failed_;
      if (site.report().why.code() == StatusCode::kInternal || site.report().why.code() == StatusCode::kCorrupt) {
        checkers_.fail(site.options().process + " failed: " + site.report().why.to_string());
      }
      crash(site, true);
    }
    if (!quiet_) last_disturbance_ = network_.now();
    network_.at(network_.now() + seconds(1), [this] { watch(); });
  }

  // ---- the verdict ----------------------------------------------------------------------------------

  [[nodiscard]] bool finished() {
    if (sites_.size() < options_.sites) return false;
    for (const auto& site : sites_) {
      if (dead_.count(site.get()) != 0 || site->options().helper) continue;
      if (!site->report().over || (site->report().failed && restarts())) return false;
      if (site->report().goes_on && followed_.count(site.get()) == 0) return false;
    }
    for (std::uint32_t i = 0; i < options_.sites; ++i) {
      SimSite* site = live("site" + std::to_string(i));
      if (site == nullptr || site->report().goes_on) return false;  // is about to start again
    }
    return true;
  }

  void judge() {
    if (!checkers_.failures().empty()) return;
    for (const auto& site : sites_) {
      if (dead_.count(site.get()) != 0 || site->options().helper) continue;
      const SimSiteReport& report = site->report();
      const std::string& process = site->options().process;
      if (report.goes_on && !report.why.ok()) continue;  // it was behind
      const bool unavailable = report.failed && report.why.code() == StatusCode::kUnavailable;
      if (left_alone(*site) && (!report.over || unavailable)) {
        log(process, "is left alone");
        continue;
      }
      if (waits_in_vain(*site)) {
        log(process, "waits in vain");
        continue;
      }
      if (!report.over) {
        checkers_.fail(process + " (" + std::to_string(report.skipped) + " skipped) is not done, " +
                       std::to_string(kBound.count() / 1'000'000) + " s after the last fault: " + site->waiting_for() +
                       "; " + status());
      } else if (report.failed) {
        checkers_.fail(process + " failed: " + report.why.to_string());
      } else if (report.round.value < options_.rounds) {
        checkers_.fail(process + " left after round " + std::to_string(report.round.value));
      }
      if (report.undisturbed) checkers_.expect_all_counted(process, report.trained);
    }
    const std::size_t expected = std::size_t{options_.rounds} * generations_;
    if (options_.faults.empty() && checkers_.commits() != expected) {
      checkers_.fail(std::to_string(checkers_.commits()) + " commits for " + std::to_string(expected) + " rounds");
    }
  }

  [[nodiscard]] std::string status() const {
    std::string text;
    for (const SimCoordinator* coordinator : candidates_)
      text += coordinator->process() + " " + coordinator->status() + " ";
    return text;
  }

  SwarmResult result() {
    SwarmResult result;
    result.failures = checkers_.failures();
    result.commits = checkers_.commits();
    result.failed_processes = failed_;
    result.faults = faults_;
    for (const auto& site : sites_) {
      result.skipped += site->report().skipped;
      result.rebased += site->report().rebased;
      result.carried += site->report().carried;
    }
    result.sites = options_.sites;
    result.rounds = options_.rounds * generations_;
    result.virtual_seconds = static_cast<double>(network_.now().time_since_epoch().count()) / 1e6;
    result.trace = to_hex(trace_.finish());
    return result;
  }

  SwarmOptions options_;
  Prng prng_;
  Prng begins_;  // what decides on the first anchor: apart, so that the rest of a seed's run stays as it was
  Network network_;
  Checkers checkers_;
  DigestChain trace_;
  std::vector<std::unique_ptr<SimCoordinator>> coordinators_;  // every process that ever was
  std::vector<SimCoordinator*> candidates_;                    // the newest at each address
  std::uint64_t births_ = 0;
  std::vector<std::unique_ptr<SimSite>> sites_;  // every process that ever was
  std::map<std::string, int> processes_;
  std::map<std::string, bool> hidden_;
  std::set<const SimSite*> dead_;
  std::string named_;            // COLLAB_INIT_FROM
  bool named_by_sites_ = false;  // else by the coordinators
  bool branches_ = false;        // COLLAB_QUORUM_TIMEOUT
  bool helped_ = false;          // a helper is there
  std::uint32_t generations_ = 1;
  std::set<const SimSite*> followed_;  // by a process of the next generation
  bool nat_ = false;                   // who cannot be dialled does not know that, and names an address
  bool quiet_ = false;
  TimePoint last_disturbance_{};
  std::size_t faults_ = 0;
  std::size_t failed_ = 0;
};

}  // namespace

std::string_view name_of(Fault fault) {
  for (const auto& [known, name] : kFaultNames) {
    if (known == fault) return name;
  }
  return "unknown";
}

Result<std::vector<Fault>> faults_from_text(const std::string& list) {
  std::vector<Fault> faults;
  if (list == "none") return faults;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    begin = end + 1;
    bool known = word == "all";
    for (const auto& [fault, name] : kFaultNames) {
      if (word == name || word == "all") {
        faults.push_back(fault);
        known = true;
      }
    }
    if (!known) {
      return invalid_argument(
          "unknown fault '" + word +
          "': known are all, none, cut, crash, vanish, pause, slow, isolate, nan, flip-mean, flip-anchor, "
          "one-way, split, coordinator, hang, last-words");
    }
  }
  return faults;
}

SwarmResult run_swarm(const SwarmOptions& options) { return Swarm(options).run(); }

std::string replay_command(const SwarmOptions& options) {
  std::string command = "collab_sim --seed " + std::to_string(options.seed);
  if (options.sites != 0) command += " --sites " + std::to_string(options.sites);
  if (options.candidates != 0) command += " --candidates " + std::to_string(options.candidates);
  if (options.rounds != 0) command += " --rounds " + std::to_string(options.rounds);
  std::string faults;
  for (const Fault fault : options.faults) faults += (faults.empty() ? "" : ",") + std::string(name_of(fault));
  command += " --faults " + (options.draw_faults ? "drawn" : faults.empty() ? "none" : faults);
  if (options.mutation != Mutation::kNone) command += " --mutation " + std::string(name_of(options.mutation));
  return command + " --verbose";
}

}  // namespace collab::sim
