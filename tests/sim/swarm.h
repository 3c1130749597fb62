// A whole swarm in virtual time: one to three coordinators, N sites, a network, faults from a seed, checkers.
//
// Threads: one. Ownership: owns everything it simulates.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/sim/faults.h"

namespace collab::sim {

struct SwarmOptions {
  std::uint64_t seed = 1;
  std::uint32_t sites = 0;        // 0: drawn, 1..6, seldom 50
  std::uint32_t rounds = 0;       // 0: drawn, 3..10, seldom up to 60
  std::uint32_t candidates = 0;   // coordinators; 0: drawn, 1..3
  std::vector<Fault> faults;      // drawn from these
  bool draw_faults = false;       // a subset of all, drawn
  std::optional<bool> overlap{};  // rounds run behind the training; none: drawn
  std::uint32_t fragments = 0;    // 0: drawn, unless it is plain
  bool plain = false;             // no optimizer state is served, no site has a budget, there is no world; else drawn
  std::optional<bool> hubs{};     // sites have collectives of a world; none: drawn, unless it is plain
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
  std::size_t forget_commands = 0;
  std::uint64_t samples = 0;  // trained
  std::uint64_t unknown = 0;  // samples that may or may not have been counted
  std::size_t spent = 0;      // sites that left as their budget was over
  SimOptimizer::Report optimizers{};
  SimWorld::Report world{};
  std::uint32_t sites = 0;
  std::uint32_t rounds = 0;
  double virtual_seconds = 0;
  std::string trace;  // digest of everything that was logged
};

[[nodiscard]] SwarmResult run_swarm(const SwarmOptions& options);
// The command line that runs this again.
[[nodiscard]] std::string replay_command(const SwarmOptions& options);

}  // namespace collab::sim
