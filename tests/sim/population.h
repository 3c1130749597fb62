// The processes of a simulated swarm: sites and coordinators that live, or that have died and will start again, and
// what they leave behind.
//
// Threads: one. Ownership: owns processes and stores; borrows network and checkers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_site.h"
#include "tests/sim/store.h"

namespace collab::sim {

inline constexpr Duration seconds(double s) { return Duration(static_cast<Duration::rep>(s * 1e6)); }
inline constexpr Duration kGrace = seconds(10);
inline constexpr Duration kJoinTimeout = seconds(60);
inline const std::string kHelper = "helper";

// Alike for all processes of a run; drawn from its seed.
struct Setting {
  std::uint64_t seed = 1;
  std::uint32_t sites = 3;
  std::uint32_t candidates = 1;
  std::uint32_t rounds = 5;
  std::uint32_t generations = 1;
  std::uint64_t elements = 5'000;
  protocol::Fragments fragments{};
  DataPlane::Settings data;
  std::uint64_t save_every = 1;  // rounds
  std::string named;             // COLLAB_INIT_FROM
  bool named_by_sites = false;   // otherwise by the coordinators
  bool helped = false;           // a helper is there
  bool nat = false;              // a site that cannot be dialled does not know that, and names an address
  bool claims = false;           // one site makes a false claim, and there are no other faults
  bool liars = false;            // sites lie; lines are wide enough for a chunk within a grace
  bool one_liar = false;         // one of them, and nothing else befalls anybody
  bool leader_times = false;     // the leader chooses how often rounds come
  bool drift = false;            // clocks run too fast or too slow
  bool optimizers = false;       // sites serve their optimizers' states
  bool budgets = false;          // what some may send does not last to the end; one site has no such cap
  bool hubs = false;             // sites have collectives of a world
  bool slow_disks = false;       // a record takes some seconds, and may be durable long before its site hears of it
  bool other_orders = false;     // each process asks the candidates in an order of its own
  bool late_candidates = false;  // a candidate's clock jumps with a site's
  bool leavers = false;          // some processes that would end by themselves leave in good order, and return
  Duration forget_after = Duration::max();
  std::optional<Merge> overlap{};  // rounds run behind the training
  Mutation mutation = Mutation::kNone;
};

enum class Death : std::uint8_t {
  kProcess,  // its links close, and shared memory stays
  kHost,     // silent, and shared memory is gone
};

class Population {
 public:
  Population(Setting setting, Network& network, Checkers& checkers, SimSite::Log log, Prng& prng);

  [[nodiscard]] const Setting& setting() const { return setting_; }
  // All that were here from the beginning. `hidden` at most: cannot be dialled.
  void begin(std::uint32_t hidden);
  // An unexpected site joins.
  void join_late();

  // That site begins again, or an unexpected one comes. It makes a false claim, to the end.
  void claim(const std::string& name);
  // A round was agreed on: before that no site can know better.
  [[nodiscard]] bool may_claim() const { return claimant_.empty() && newest_record({}).anchor.round.value > 0; }
  [[nodiscard]] const std::string& claimant() const { return claimant_; }  // empty: there is none
  [[nodiscard]] bool is_claimant(const SimSite& site) const { return site.options().name == claimant_; }
  // There are no other faults.
  [[nodiscard]] bool claims_alone() const { return setting_.claims && !claimant_.empty(); }

  // What that site says from now until then is not all true, started again or not. Then another process takes its
  // place and says the truth: what it has spoilt for itself, by lies about what it holds, stays so to the end.
  void lie(SimSite& site, std::uint64_t seed, TimePoint until);
  [[nodiscard]] bool lies(const std::string& name) const;
  [[nodiscard]] bool has_lied(const std::string& name) const { return lies_.contains(name); }
  [[nodiscard]] bool may_lie(const std::string& name) const {
    return !setting_.one_liar || has_lied(name) || lies_.empty();
  }

  // ---- sites
  // Every process that ever was.
  [[nodiscard]] const std::vector<std::unique_ptr<SimSite>>& processes() const { return sites_; }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }  // without the helper
  // The newest of that name; null when it is dead.
  [[nodiscard]] SimSite* live(const std::string& name) const;
  [[nodiscard]] bool is_dead(const SimSite& site) const { return dead_.count(&site) != 0; }
  [[nodiscard]] bool is_gone(const std::string& name) const { return gone_.count(name) != 0; }
  [[nodiscard]] TimePoint started(const SimSite& site) const { return started_.at(&site); }
  // It begins the next generation, or has.
  [[nodiscard]] bool is_followed(const SimSite& site) const { return followed_.count(&site) != 0; }
  [[nodiscard]] Store& store_of(const SimSite& site) {
    return stores_[{site.options().name, site.options().generation}];
  }
  // Another process starts later, unless it is `for_good`.
  void crash(SimSite& site, Death death, bool for_good = false);
  // It has failed, and its user starts it again.
  void restart(SimSite& site);
  // At most so many that a majority is left. With an operator, who may forget the others, so many that one is left.
  [[nodiscard]] bool may_lose_one() const {
    return reader_ ? gone_.size() + 1 < setting_.sites : 2 * (gone_.size() + 1) < setting_.sites;
  }

  // ---- coordinators
  [[nodiscard]] const std::vector<SimCoordinator*>& candidates() const { return candidates_; }  // the newest of each
  // An operator reads what they wait for.
  using Reader = std::function<void(SimCoordinator&, const std::string&)>;
  void employ(Reader reader) { reader_ = std::move(reader); }
  // Mostly the one that has members.
  [[nodiscard]] std::uint32_t some_candidate();
  void kill_candidate(std::uint32_t candidate, Death death, bool for_good = false);
  void jump_clock(SimSite& site, Duration by);
  [[nodiscard]] bool may_lose_a_candidate() const { return lost_candidates_.size() + 1 < candidates_.size(); }
  [[nodiscard]] std::string status() const;

  // ---- time
  // Nothing of what was done to them lasts longer.
  void busy_until(TimePoint when) { busy_until_ = std::max(busy_until_, when); }
  [[nodiscard]] TimePoint calm_from() const { return busy_until_; }
  void log(const std::string& who, const std::string& what) { log_(who, what); }
  // The world of the collectives. Null: there is none.
  [[nodiscard]] SimWorld* world() const { return world_.get(); }

 private:
  void start_site(const std::string& name, std::uint32_t generation);
  void end(SimSite& site, Death death);
  [[nodiscard]] wire::Record newest_record(std::optional<std::uint32_t> generation) const;
  TimePoint start_again(const std::string& name, std::uint32_t generation);
  void start_again_once_over(SimSite& site);
  [[nodiscard]] SimSiteOptions options_of(const std::string& name, std::uint32_t generation);
  [[nodiscard]] std::uint64_t budget_of(const std::string& name) const;
  void start_coordinator(std::uint32_t candidate);
  RunId name_run();
  void set_clock(NodeId node);
  void follow_generations();
  static std::string address_of(std::uint32_t candidate) { return "c" + std::to_string(candidate) + ":1"; }

  Setting setting_;
  Network& network_;
  Checkers& checkers_;
  SimSite::Log log_;
  Prng& prng_;
  Prng begins_;  // what decides on the first anchor
  Prng clocks_;  // of candidates' hosts, and what names their runs
  Prng disks_;
  Prng leaves_;
  Prng orders_;
  std::chrono::seconds last_birth_{};
  Reader reader_;
  std::unique_ptr<SimWorld> world_;
  std::map<std::pair<std::string, std::uint32_t>, Store> stores_;  // by site and generation
  std::vector<std::unique_ptr<SimCoordinator>> coordinators_;      // every process that ever was
  std::vector<SimCoordinator*> candidates_;
  std::set<std::uint32_t> lost_candidates_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<SimSite>> sites_;
  std::map<std::string, SimSite*> newest_;
  std::map<std::string, int> incarnations_;
  std::set<std::string> hidden_;
  std::set<std::string> gone_;
  std::set<const SimSite*> dead_;
  std::map<const SimSite*, TimePoint> started_;
  std::set<const SimSite*> followed_;
  TimePoint busy_until_{};
  std::string claimant_;
  Prng claims_;
  std::map<std::string, std::pair<std::uint64_t, TimePoint>> lies_;  // by site: a seed, and until when
};

}  // namespace collab::sim
