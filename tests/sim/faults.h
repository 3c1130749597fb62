// What befalls a simulated swarm, when, and for how long: drawn from a seed, over the whole of the run.
//
// Threads: one. Ownership: its plan; borrows the population.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collab/status.h"
#include "tests/sim/population.h"

namespace collab::sim {

enum class Fault : std::uint8_t {
  kCutLink,          // one link, or all links, of a site close
  kCrash,            // a process is gone, its links close; another starts later
  kVanish,           // a host is gone silently; another starts later, with nothing of its shared memory
  kDie,              // a site is gone for good
  kPause,            // a process stands still
  kSlow,             // a slow line
  kIsolate,          // what a site sends and is sent waits
  kNan,              // NaN in a site's parameters
  kFlipMean,         // a bit of the mean at one site
  kFlipAnchor,       // a bit of the anchor at one site
  kOneWay,           // what a site sends waits, what it is sent comes through
  kSplit,            // the network falls into two halves, coordinators included
  kCoordinator,      // a coordinator is gone; one that knows nothing takes its place
  kCoordinatorDies,  // and none does
  kHang,             // a coordinator stands still
  kLastWords,        // a commit reaches one member, and both it and the coordinator are gone
  kBarrier,          // a coordinator takes a site that trains for one that stands in a barrier of all
  kStore,            // a process is gone, and of what it has left some is lost, torn, or older than it was
  kDisk,             // a site's disk is full for a while
  kClock,            // a site's clock jumps, as after a suspension
  kJoin,             // an unknown site comes
  kForget,           // an operator has those forgotten whom a minority waits for, dead for good or behind a cut; sites
                     // die until one is left
  kLie,              // a site lies about what it holds and has computed; not among "all"
  kClaim,            // a member, or a new one, claims rounds that no site has agreed on; not among "all"
};
[[nodiscard]] std::string_view name_of(Fault fault);
[[nodiscard]] Result<std::vector<Fault>> faults_from_text(
    const std::string& list);  // "cut,crash", "all", "all,lie", "none"
[[nodiscard]] std::vector<Fault> draw_faults(Prng& prng);

class Faults {
 public:
  Faults(std::vector<Fault> kinds, Population& population, Network& network, Prng& prng);

  // Over about so long.
  void plan(Duration run);
  [[nodiscard]] bool any() const { return !kinds_.empty(); }
  [[nodiscard]] std::size_t forget_commands() const { return forget_commands_; }
  [[nodiscard]] std::size_t inflicted() const { return inflicted_; }

 private:
  void inflict(Fault fault, const std::string& name);
  void on_site(Fault fault, SimSite& site, TimePoint until);
  void on_swarm(Fault fault, const std::string& name, TimePoint until);
  [[nodiscard]] Duration draw_length();
  void split();
  void last_words();
  void stand(const std::string& name, TimePoint until);
  void damage(Store& store);
  void fill_disk(SimSite& site, TimePoint until);
  void employ_operator(TimePoint until);
  void tell_to_forget(SimCoordinator& reads, const std::vector<std::string>& names);

  std::vector<Fault> kinds_;
  Population& population_;
  Network& network_;
  Prng& prng_;
  Prng operator_;  // draws by itself, so that all other faults of a swarm are the same without it
  bool operated_ = false;
  std::size_t inflicted_ = 0;
  std::size_t forget_commands_ = 0;
};

}  // namespace collab::sim
