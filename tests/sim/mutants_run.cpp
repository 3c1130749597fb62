// Runs what finds a planted bug.
#include "tests/sim/mutants.h"
#include "tests/unit/protocol/agreement_world.h"

namespace collab::sim {
namespace {

SwarmOptions options_of(const MutantRow& row, std::uint64_t seed) {
  SwarmOptions options;
  if (!row.drawn) {
    options.overlap = false;
    options.plain = true;
    options.hubs = row.hubs;
    options.fragments = row.fragments;
  }
  options.seed = seed;
  options.sites = row.sites;
  options.candidates = row.candidates;
  options.rounds = row.rounds;
  options.faults = *faults_from_text(std::string(row.faults));
  return options;
}

std::vector<std::string> run_history(std::uint32_t sites, std::uint64_t seed) {
  protocol::AgreementWorld world(seed, sites, 2);
  for (std::uint32_t i = 0; i < 3'000 * sites && world.invariants().broken().empty(); ++i) world.step();
  return world.invariants().broken();
}

std::uint32_t sites_of(const MutantRow& row) { return row.sites == 0 ? 3 : row.sites; }

}  // namespace

std::vector<std::string> run_row(const MutantRow& row, std::uint64_t seed) {
  if (row.finder == Finder::kExplorer)
    return replay({row.start, row.fragments}, *schedule_from(std::string(row.schedule)));
  if (row.finder == Finder::kHistory) return run_history(sites_of(row), seed);
  return run_swarm(options_of(row, seed)).failures;
}

std::optional<std::string> explore_row(std::uint64_t states, const std::string& kinds) {
  for (const char* start : {"split", "agreed", "joining", "fresh"}) {
    ExploreOptions options;
    options.setup.start = *start_from(start);
    options.kinds = kinds;
    options.most_states = states;
    Explorer explorer(options);
    if (explorer.run()) continue;
    const Explorer::Failure& found = explorer.failures().front();
    return std::string(start) + " " + text_of(found.schedule) + " after " + std::to_string(explorer.states()) +
           " states: " + found.wrong.front();
  }
  return std::nullopt;
}

std::string replay_row(const MutantRow& row, std::uint64_t seed) {
  return "collab_sim_mutants --mutant " + std::string(row.name) + " --seed " + std::to_string(seed);
}

}  // namespace collab::sim
