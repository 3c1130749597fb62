#include "tests/sim/faults.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

namespace collab::sim {
namespace {

constexpr std::array<std::pair<Fault, std::string_view>, 22> kFaultNames{{
    {Fault::kCutLink, "cut"},
    {Fault::kCrash, "crash"},
    {Fault::kVanish, "vanish"},
    {Fault::kDie, "die"},
    {Fault::kPause, "pause"},
    {Fault::kSlow, "slow"},
    {Fault::kIsolate, "isolate"},
    {Fault::kNan, "nan"},
    {Fault::kFlipMean, "flip-mean"},
    {Fault::kFlipAnchor, "flip-anchor"},
    {Fault::kOneWay, "one-way"},
    {Fault::kSplit, "split"},
    {Fault::kCoordinator, "coordinator"},
    {Fault::kCoordinatorDies, "coordinator-dies"},
    {Fault::kHang, "hang"},
    {Fault::kLastWords, "last-words"},
    {Fault::kBarrier, "barrier"},
    {Fault::kStore, "store"},
    {Fault::kDisk, "disk"},
    {Fault::kClock, "clock"},
    {Fault::kJoin, "join"},
    {Fault::kForget, "forget"},
}};
// The words for it are said some time after the wait has begun.
constexpr Duration kReadsOn = seconds(30);
// Found only by their names: they are no accidents.
constexpr std::array<std::pair<Fault, std::string_view>, 2> kAttackNames{{
    {Fault::kLie, "lie"},
    {Fault::kClaim, "claim"},
}};

// "...: collab forget paris tokyo (...)"; none where they are too many to be named.
std::vector<std::string> names_to_forget(const std::string& text) {
  constexpr std::string_view kCommand = "collab forget ";
  const std::size_t at = text.find(kCommand);
  std::vector<std::string> names;
  if (at == std::string::npos) return names;
  std::istringstream words(text.substr(at + kCommand.size()));
  for (std::string word; words >> word && word.front() != '(';) names.push_back(word);
  return std::ranges::count(names, "SITE") == 0 ? names : std::vector<std::string>();
}

}  // namespace

std::string_view name_of(Fault fault) {
  for (const auto& [known, name] : kFaultNames) {
    if (known == fault) return name;
  }
  for (const auto& [known, name] : kAttackNames) {
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
    std::string names = "all, none";
    for (const auto& [fault, name] : kFaultNames) {
      names += ", " + std::string(name);
      if (word != name && word != "all") continue;
      faults.push_back(fault);
      known = true;
    }
    for (const auto& [fault, name] : kAttackNames) {
      names += ", " + std::string(name);
      if (word != name) continue;
      faults.push_back(fault);
      known = true;
    }
    if (!known) return invalid_argument("unknown fault '" + word + "': known are " + names);
  }
  return faults;
}

std::vector<Fault> draw_faults(Prng& prng) {
  std::vector<Fault> faults;
  for (const auto& [fault, name] : kFaultNames) {
    if (prng.chance(0.3)) faults.push_back(fault);
  }
  return faults;
}

Faults::Faults(std::vector<Fault> kinds, Population& population, Network& network, Prng& prng)
    : kinds_(std::move(kinds)),
      population_(population),
      network_(network),
      prng_(prng),
      operator_(population.setting().seed ^ 0x0F04'6E70'0000'0000) {
  operated_ = std::erase(kinds_, Fault::kForget) > 0 && operator_.chance(0.5);
}

// Faults come until the last round would be over, if there were none; what they hold up, others fall upon.
void Faults::plan(Duration run) {
  if (kinds_.empty()) return;
  const double length = static_cast<double>(run.count()) / 1e6 * (1 + 1.5 * prng_.uniform());
  const auto count = 1 + prng_.below(2 * kinds_.size() + 2) + static_cast<std::uint64_t>(length / 20);
  const std::uint32_t sites = population_.setting().sites;
  if (operated_) employ_operator(TimePoint(seconds(1 + length) + kReadsOn));
  for (std::uint64_t i = 0; i < count; ++i) {
    const Fault fault = kinds_[prng_.below(kinds_.size())];
    const std::uint64_t whose = prng_.below(sites + (population_.setting().helped ? 1 : 0));
    const std::string name = whose == sites ? kHelper : "site" + std::to_string(whose);
    const TimePoint when(seconds(1 + length * prng_.uniform()));
    population_.busy_until(when);
    network_.at(when, [this, fault, name] { inflict(fault, name); });
  }
}

// Mostly shorter than the grace, sometimes much longer.
Duration Faults::draw_length() {
  const double u = prng_.uniform();
  return prng_.chance(0.7) ? seconds(0.5 + 8 * u * u) : kGrace + seconds(25 * u);
}

void Faults::inflict(Fault fault, const std::string& name) {
  SimSite* site = population_.live(name);
  if (site == nullptr || site->report().over) return;
  if (fault == Fault::kDie && (name == kHelper || !population_.may_lose_one())) return;
  if (fault == Fault::kCoordinatorDies && !population_.may_lose_a_candidate()) return;
  if (fault == Fault::kLie && !population_.may_lie(name)) return;
  if (fault == Fault::kClaim && (!population_.may_claim() || population_.names().size() < 3)) return;
  ++inflicted_;
  population_.log(site->options().process, "FAULT " + std::string(name_of(fault)));
  TimePoint until = network_.now() + draw_length();
  if (population_.setting().one_liar) until += 5 * (until - network_.now());  // longer than what they may hold up
  population_.busy_until(until);
  on_site(fault, *site, until);
  on_swarm(fault, name, until);
}

void Faults::on_site(Fault fault, SimSite& site, TimePoint until) {
  switch (fault) {
    case Fault::kCutLink: return network_.cut_links(site.node(), prng_);
    case Fault::kCrash: return population_.crash(site, Death::kProcess);
    case Fault::kVanish: return population_.crash(site, Death::kHost);
    case Fault::kDie: return population_.crash(site, prng_.chance(0.5) ? Death::kProcess : Death::kHost, true);
    case Fault::kPause: return network_.pause(site.node(), until);
    case Fault::kSlow: return network_.slow(site.node(), 2 + 20 * prng_.uniform(), until);
    case Fault::kIsolate: return network_.isolate(site.node(), until);
    case Fault::kOneWay: return network_.mute(site.node(), until);
    case Fault::kNan: return site.poison_parameters();
    case Fault::kFlipMean: return site.flip_mean_once();
    case Fault::kFlipAnchor: return site.flip_anchor_once();
    case Fault::kStore: population_.crash(site, Death::kProcess); return damage(population_.store_of(site));
    case Fault::kLie: return population_.lie(site, prng_.next(), until);
    case Fault::kDisk: return fill_disk(site, until);
    case Fault::kClock: return population_.jump_clock(site, seconds(30 * prng_.uniform() * prng_.uniform()));
    default: return;  // not a site's
  }
}

void Faults::on_swarm(Fault fault, const std::string& name, TimePoint until) {
  const auto death = [this] { return prng_.chance(0.7) ? Death::kProcess : Death::kHost; };
  switch (fault) {
    case Fault::kSplit: return split();
    case Fault::kCoordinator: return population_.kill_candidate(population_.some_candidate(), death());
    case Fault::kCoordinatorDies: return population_.kill_candidate(population_.some_candidate(), death(), true);
    case Fault::kHang: return network_.pause(population_.candidates()[population_.some_candidate()]->node(), until);
    case Fault::kLastWords: return last_words();
    case Fault::kBarrier: return stand(name, until);
    case Fault::kJoin: return population_.join_late();
    case Fault::kClaim: return population_.claim(prng_.chance(0.5) ? name : std::string());
    default: return;  // a site's
  }
}

void Faults::split() {
  std::vector<bool> side;
  const std::size_t nodes = network_.nodes();
  for (std::size_t node = 0; node < nodes; ++node) side.push_back(prng_.chance(0.5));
  // A split leaves some sites in a minority. They are told after a grace, and ten seconds later they are told what can
  // be done.
  const TimePoint until = network_.now() + seconds(1 + (operated_ ? 60 : 25) * prng_.uniform());
  population_.busy_until(until);
  network_.split(side, until);
}

void Faults::last_words() {
  const std::uint32_t candidate = population_.some_candidate();
  SimCoordinator* coordinator = population_.candidates()[candidate];
  coordinator->die_at_commit([this, candidate](SiteId member) {
    population_.log("swarm", "FAULT the commit reaches site " + std::to_string(member.value) + " only");
    population_.kill_candidate(candidate, prng_.chance(0.5) ? Death::kProcess : Death::kHost);
    const TimePoint when = network_.now() + seconds(0.3);
    population_.busy_until(when);
    network_.at(when, [this, member] {
      for (const std::string& name : population_.names()) {
        SimSite* site = population_.live(name);
        if (site != nullptr && !site->report().over && site->self() == member) {
          return population_.crash(*site, Death::kProcess);
        }
      }
    });
  });
}

// Each ready site is parted from it at once. That may lead only to a round without it, or to none.
void Faults::stand(const std::string& name, TimePoint until) {
  protocol::InCall barrier{std::string(protocol::kStandsStill) + "all_reduce", {}, true};
  for (std::uint32_t i = 0; i < population_.setting().sites; ++i) barrier.awaits.insert("site" + std::to_string(i));
  barrier.awaits.erase(name);
  SimCoordinator* coordinator = population_.candidates()[population_.some_candidate()];
  coordinator->tell_calls({{{name, barrier}}});
  network_.at(until, [coordinator] { coordinator->tell_calls({}); });
}

void Faults::damage(Store& store) {
  const auto damage = [this](auto& part, bool may_be_older) {
    switch (prng_.below(4)) {
      case 0: return part.lose();
      case 1: return may_be_older ? part.age() : part.lose();
      case 2: return part.tear();
      default: return;
    }
  };
  damage(store.record, false);
  damage(store.state, true);
  damage(store.arena, true);
}

void Faults::fill_disk(SimSite& site, TimePoint until) {
  Store& store = population_.store_of(site);
  bool& fault = prng_.chance(0.5) ? store.full : store.slow;
  fault = true;
  network_.at(until, [&fault] { fault = false; });
}

// The operator copies the command that a candidate names, after some time, and may leave out a name. By then it may
// have come true, or be wrong: the named sites may live, and only be out of sight.
void Faults::employ_operator(TimePoint until) {
  population_.employ([this, until](SimCoordinator& reads, const std::string& text) {
    std::vector<std::string> names = names_to_forget(text);
    if (names.empty() || network_.now() > until || !operator_.chance(0.8)) return;
    if (names.size() > 1 && operator_.chance(0.2)) names.erase(names.begin());
    const double u = operator_.uniform();
    const TimePoint when = network_.now() + seconds(8 * u * u);
    population_.busy_until(when);
    network_.at(when, [this, &reads, names] { tell_to_forget(reads, names); });
  });
}

// To the candidate that has asked, or to any that may be heard.
void Faults::tell_to_forget(SimCoordinator& reads, const std::vector<std::string>& names) {
  ++inflicted_;
  ++forget_commands_;
  std::string list;
  for (const std::string& name : names) list += " " + name;
  population_.log("operator", "FAULT forget" + list);
  const bool everywhere = operator_.chance(0.3);
  const std::vector<SimCoordinator*> candidates = population_.candidates();
  for (SimCoordinator* candidate : candidates) {
    if (everywhere || candidate == &reads) candidate->forget(names);
  }
}

}  // namespace collab::sim
