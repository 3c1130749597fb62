// Bugs planted in the agreements (core/protocol/mutants.h), and what finds each of them.
//
// Threads: one; which bug is planted is a global. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/protocol/mutants.h"
#include "tests/sim/explorer/explorer.h"
#include "tests/sim/swarm.h"

namespace collab::sim {

using protocol::Mutant;

enum class Finder : std::uint8_t {
  kSwarm,     // a simulated swarm with these options (swarm.h)
  kHistory,   // a history of the agreement alone (tests/unit/protocol/agreement_world.h)
  kExplorer,  // a schedule of few departures (explorer/explorer.h)
  kUnit,      // a unit test of the protocol: no seed of the others has found it, `why` says what it would take
  kNobody,    // no run of sites and candidates that are sound can show it: `why` says why; a unit test may
};

struct MutantRow {
  Mutant mutant;
  Mutant with = Mutant::kCount;  // a second one, where either alone is masked by the other
  std::string_view name;
  std::string_view breaks;  // in one sentence
  Finder finder = Finder::kSwarm;
  std::uint64_t seed = 0;   // a run that is found to be wrong with the bug, and right without
  std::uint32_t sites = 0;  // 0: drawn by the swarm; 3 in a history
  std::string_view faults = "all";
  std::uint32_t candidates = 0;  // 0: drawn
  std::uint32_t rounds = 0;      // 0: drawn
  bool drawn = false;            // with all that a swarm draws by itself: not the plain one
  bool hubs = false;             // with collectives of a world
  std::uint32_t fragments = 1;   // of the model, that take turns
  std::string_view schedule{};   // of kExplorer
  Start start = Start::kAgreed;  // likewise
  std::string_view test{};       // of kUnit, and of kNobody where there is one, as a filter of GoogleTest
  std::string_view why{};        // of kUnit and of kNobody
};

[[nodiscard]] std::span<const MutantRow> mutant_table();
[[nodiscard]] const MutantRow* row_named(std::string_view name);

// From now on; null: the protocol as it is.
void plant(const MutantRow* row);

// What is found to be wrong in the row's run from that seed, with the bug that is planted; empty: nothing.
[[nodiscard]] std::vector<std::string> run_row(const MutantRow& row, std::uint64_t seed);
// The first schedule that finds the bug that is planted, with faults of these kinds, within so many states of each
// start.
[[nodiscard]] std::optional<std::string> explore_row(std::uint64_t states, const std::string& kinds = "krwlxq");
[[nodiscard]] std::string replay_row(const MutantRow& row, std::uint64_t seed);

}  // namespace collab::sim
