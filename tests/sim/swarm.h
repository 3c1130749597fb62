// A whole swarm in virtual time: one to three coordinators, N sites, a network, faults from a seed, checkers.
//
// Threads: one. Ownership: owns everything it simulates.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/protocol/coordinator.h"
#include "tests/sim/sim_site.h"

namespace collab::sim {

enum class Fault : std::uint8_t {
  kCutLink,      // one link, or all links, of a site close
  kCrash,        // a process is gone, its links close; another starts later
  kVanish,       // a host is gone, nobody is told; another starts later
  kPause,        // a process stands still
  kSlow,         // a slow line
  kIsolate,      // what a site sends and is sent waits
  kNan,          // NaN in a site's parameters
  kFlipMean,     // a bit of the mean at one site
  kFlipAnchor,   // a bit of the anchor at one site
  kOneWay,       // what a site sends waits, what it is sent comes through
  kSplit,        // the network falls into two halves, coordinators included
  kCoordinator,  // a coordinator is gone; one that knows nothing takes its place
  kHang,         // a coordinator stands still
  kLastWords,    // a commit reaches one member, and both it and the coordinator are gone
  kBarrier,      // a coordinator takes a site that trains for one that stands in a barrier of all
};
[[nodiscard]] std::string_view name_of(Fault fault);
[[nodiscard]] Result<std::vector<Fault>> faults_from_text(const std::string& list);  // "cut,crash", "all", "none"

struct SwarmOptions {
  std::uint64_t seed = 1;
  std::uint32_t sites = 0;       // 0: drawn, 1..6
  std::uint32_t rounds = 0;      // 0: drawn, 3..10
  std::uint32_t candidates = 0;  // coordinators; 0: drawn, 1..3
  std::vector<Fault> faults;     // drawn from these
  bool draw_faults = false;      // a subset of all, drawn
  Mutation mutation = Mutation::kNone;
  bool verbose = false;
};

struct SwarmResult {
  std::vector<std::string> failures;  // empty: the run kept every promise
  std::size_t commits = 0;
  std::size_t failed_processes = 0;
  std::size_t skipped = 0;  // triggers answered without a round
  std::size_t rebased = 0;
  std::size_t carried = 0;
  std::size_t faults = 0;
  std::uint32_t sites = 0;
  std::uint32_t rounds = 0;
  double virtual_seconds = 0;
  std::string trace;  // digest of everything that was logged
};

[[nodiscard]] SwarmResult run_swarm(const SwarmOptions& options);
// The command line that runs this again.
[[nodiscard]] std::string replay_command(const SwarmOptions& options);

}  // namespace collab::sim
