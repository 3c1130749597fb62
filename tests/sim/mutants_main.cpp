// collab_sim_mutants: bugs planted in the agreement, and the first seed that finds each.
//
//   collab_sim_mutants --hunt [--mutant NAME] [--first N] [--seeds N]
//   collab_sim_mutants --explore [--mutant NAME] [--states N] [--kinds krwlxq]    the first schedule in place of seeds
//   collab_sim_mutants --mutant NAME --seed N      that run alone, and what is wrong in it
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/sim/mutants.h"

namespace {

using namespace collab::sim;

constexpr const char* kUsage =
    "usage: collab_sim_mutants --hunt [--mutant NAME] [--first N] [--seeds N]\n"
    "                  [--finder swarm|history] [--sites N] [--candidates N] [--rounds N] [--faults LIST]\n"
    "                  [--drawn]\n"
    "       collab_sim_mutants --explore [--mutant NAME] [--states N] [--kinds krwlxq]\n"
    "       collab_sim_mutants --mutant NAME --seed N\n";

struct Arguments {
  std::string mutant;
  std::uint64_t first = 1;
  std::uint64_t seeds = 500;
  std::uint64_t states = 200'000;
  std::string kinds = "krwlxq";
  bool hunt = false;
  bool explore = false;
  // In place of the row's.
  std::optional<Finder> finder;
  std::optional<std::uint32_t> sites, candidates, rounds;
  std::string faults;
  bool drawn = false;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--hunt") {
      arguments.hunt = true;
      continue;
    }
    if (name == "--explore") {
      arguments.explore = true;
      continue;
    }
    if (name == "--drawn") {
      arguments.drawn = true;
      continue;
    }
    if (i + 1 >= argc) return std::nullopt;
    const std::string value = argv[++i];
    const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--mutant") {
      arguments.mutant = value;
    } else if (name == "--seed" || name == "--first") {
      arguments.first = number;
    } else if (name == "--seeds") {
      arguments.seeds = number;
    } else if (name == "--states") {
      arguments.states = number;
    } else if (name == "--kinds") {
      arguments.kinds = value;
    } else if (name == "--finder") {
      arguments.finder = value == "history" ? Finder::kHistory : Finder::kSwarm;
    } else if (name == "--sites") {
      arguments.sites = static_cast<std::uint32_t>(number);
    } else if (name == "--candidates") {
      arguments.candidates = static_cast<std::uint32_t>(number);
    } else if (name == "--rounds") {
      arguments.rounds = static_cast<std::uint32_t>(number);
    } else if (name == "--faults") {
      arguments.faults = value;
    } else {
      return std::nullopt;
    }
  }
  if (!arguments.mutant.empty() && row_named(arguments.mutant) == nullptr) {
    std::fprintf(stderr, "collab_sim_mutants: no bug is named %s; those there are:\n", arguments.mutant.c_str());
    for (const MutantRow& row : mutant_table()) std::fprintf(stderr, "  %s\n", std::string(row.name).c_str());
    return std::nullopt;
  }
  if (!arguments.hunt && !arguments.explore && arguments.mutant.empty()) return std::nullopt;
  return arguments;
}

MutantRow row_for(const MutantRow& row, const Arguments& arguments) {
  MutantRow changed = row;
  changed.finder = arguments.finder.value_or(row.finder);
  changed.sites = arguments.sites.value_or(row.sites);
  changed.candidates = arguments.candidates.value_or(row.candidates);
  changed.rounds = arguments.rounds.value_or(row.rounds);
  if (!arguments.faults.empty()) changed.faults = arguments.faults;
  changed.drawn = row.drawn || arguments.drawn;
  return changed;
}

// Whether one of the seeds finds it.
bool hunt(const MutantRow& row, const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  std::printf("%-30s ", std::string(row.name).c_str());
  std::fflush(stdout);
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  plant(&row);
  if (row.finder == Finder::kExplorer) {
    const std::optional<std::string> schedule = explore_row(arguments.states, arguments.kinds);
    std::printf("%.140s, %4.1f s\n", schedule ? schedule->c_str() : "NOT FOUND", seconds());
    return schedule.has_value();
  }
  for (std::uint64_t seed = arguments.first; seed < arguments.first + arguments.seeds; ++seed) {
    const std::vector<std::string> wrong = run_row(row, seed);
    if (wrong.empty()) continue;
    plant(nullptr);
    const bool without = !run_row(row, seed).empty();  // then it shows nothing
    plant(&row);
    if (without) continue;
    std::printf("seed %5llu, %4.1f s: %.110s\n", static_cast<unsigned long long>(seed), seconds(),
                wrong.front().c_str());
    std::fflush(stdout);
    return true;
  }
  std::printf("%s, %4.1f s\n", row.finder < Finder::kUnit ? "NOT FOUND" : "not found, as it is to be", seconds());
  std::fflush(stdout);
  return false;
}

// Every bug, whichever judge finds it: this shows the explorer's power.
int explore(const Arguments& arguments) {
  for (const MutantRow& row : mutant_table()) {
    if (!arguments.mutant.empty() && row.name != arguments.mutant) continue;
    plant(&row);
    const std::optional<std::string> found = explore_row(arguments.states, arguments.kinds);
    std::printf("%-30s %.200s\n", std::string(row.name).c_str(), found ? found->c_str() : "not found");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Arguments> arguments = parse(argc, argv);
  if (!arguments) {
    std::fprintf(stderr, "%s", kUsage);
    return 2;
  }
  if (arguments->explore) return explore(*arguments);
  if (!arguments->hunt) {
    const MutantRow row = row_for(*row_named(arguments->mutant), *arguments);
    plant(&row);
    const std::vector<std::string> wrong = run_row(row, arguments->first);
    for (const std::string& line : wrong) std::printf("%s\n", line.c_str());
    return wrong.empty() ? 0 : 1;
  }
  bool as_expected = true;
  for (const MutantRow& row : mutant_table()) {
    if (!arguments->mutant.empty() && row.name != arguments->mutant) continue;
    const MutantRow changed = row_for(row, *arguments);
    const bool found = hunt(changed, *arguments);
    as_expected = (found || changed.finder >= Finder::kUnit) && as_expected;
  }
  return as_expected ? 0 : 1;
}
