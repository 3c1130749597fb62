// collab_sim: one simulated swarm from a seed, or many fresh ones.
//
//   collab_sim --seed 7 --sites 3 --rounds 5 --faults cut,crash --verbose
//   collab_sim --count 200 [--first SEED]      fresh seeds from the clock; faults drawn from each seed
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "tests/sim/swarm.h"

namespace {

using namespace collab;

constexpr const char* kUsage =
    "usage: collab_sim [--seed N | --count N [--first N]] [--sites N] [--candidates N] [--rounds N]\n"
    "                  [--faults drawn|none|all|LIST] [--mutation "
    "none|forge-done|count-twice|flip-bit|lose-steps|carry-stale|keep-words] "
    "[--overlap 0|1] [--hubs 0|1] [--fragments N] [--verbose]\n"
    "Sites, candidates and rounds that are not given are drawn from the seed, and whether rounds run behind the "
    "training, and whether sites have collectives of a world.\n";

constexpr std::uint64_t kMostOfSwarm = 1000;  // sites, candidates or rounds

struct Arguments {
  sim::SwarmOptions swarm;
  std::uint64_t count = 1;
  bool fresh = false;
};

std::optional<sim::Mutation> mutation_from(const std::string& name) {
  if (name == "none") return sim::Mutation::kNone;
  if (name == "forge-done") return sim::Mutation::kForgeDone;
  if (name == "count-twice") return sim::Mutation::kCountTwice;
  if (name == "flip-bit") return sim::Mutation::kFlipBit;
  if (name == "lose-steps") return sim::Mutation::kLoseSteps;
  if (name == "carry-stale") return sim::Mutation::kCarryStale;
  if (name == "keep-words") return sim::Mutation::kKeepWords;
  return std::nullopt;
}

Result<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  bool seed_given = false;
  arguments.swarm.draw_faults = true;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--verbose") {
      arguments.swarm.verbose = true;
      continue;
    }
    if (i + 1 >= argc) return invalid_argument(name + ": expected an option and its value");
    const std::string value = argv[++i];
    if (name == "--faults") {
      arguments.swarm.draw_faults = value == "drawn";
      if (value == "drawn") continue;
      auto faults = sim::faults_from_text(value);
      if (!faults.ok()) return faults.status();
      arguments.swarm.faults = *faults;
      continue;
    }
    if (name == "--mutation") {
      const auto mutation = mutation_from(value);
      if (!mutation) return invalid_argument("unknown mutation '" + value + "'");
      arguments.swarm.mutation = *mutation;
      continue;
    }
    if (name == "--overlap" || name == "--hubs") {
      if (value != "0" && value != "1") return invalid_argument(name + ": expected 0 or 1, got '" + value + "'");
      (name == "--hubs" ? arguments.swarm.hubs : arguments.swarm.overlap) = value == "1";
      continue;
    }
    const bool of_swarm = name == "--fragments" || name == "--sites" || name == "--candidates" || name == "--rounds";
    const std::uint64_t most = of_swarm ? kMostOfSwarm : UINT64_MAX;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const std::uint64_t least = name == "--seed" || name == "--first" ? 0 : 1;
    if (error != std::errc() || end != value.data() + value.size() || number < least || number > most) {
      return invalid_argument(name + ": expected a number from " + std::to_string(least) + " to " +
                              std::to_string(most) + ", got '" + value + "'");
    }
    if (name == "--seed" || name == "--first") {
      arguments.swarm.seed = number;
      seed_given = true;
    } else if (name == "--count") {
      arguments.count = number;
      arguments.fresh = true;
    } else if (name == "--sites") {
      arguments.swarm.sites = static_cast<std::uint32_t>(number);
    } else if (name == "--candidates") {
      arguments.swarm.candidates = static_cast<std::uint32_t>(number);
    } else if (name == "--fragments") {
      arguments.swarm.fragments = static_cast<std::uint32_t>(number);
    } else if (name == "--rounds") {
      arguments.swarm.rounds = static_cast<std::uint32_t>(number);
    } else {
      return invalid_argument("unknown option " + name);
    }
  }
  if (arguments.fresh && !seed_given) {
    arguments.swarm.seed = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const Result<Arguments> arguments = parse(argc, argv);
  if (!arguments.ok()) {
    std::fprintf(stderr, "collab_sim: %s\n%s", arguments.status().message().c_str(), kUsage);
    return 2;
  }
  sim::SwarmOptions options = arguments->swarm;
  std::printf("collab_sim: %llu run(s), first seed %llu\n", static_cast<unsigned long long>(arguments->count),
              static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  std::uint64_t bad = 0;
  std::uint64_t commits = 0;
  std::uint64_t faults = 0;
  std::uint64_t forget_commands = 0;
  std::uint64_t restarts = 0;
  std::uint64_t skipped = 0;
  std::uint64_t rebased = 0;
  std::uint64_t carried = 0;
  std::uint64_t samples = 0;
  std::uint64_t unknown = 0;
  std::uint64_t spent = 0;
  sim::SimOptimizer::Report optimizers;
  sim::SimWorld::Report world;
  double seconds = 0;
  for (std::uint64_t i = 0; i < arguments->count; ++i, ++options.seed) {
    const sim::SwarmResult result = sim::run_swarm(options);
    commits += result.commits;
    faults += result.faults;
    forget_commands += result.forget_commands;
    restarts += result.failed_processes;
    skipped += result.skipped;
    rebased += result.rebased;
    carried += result.carried;
    samples += result.samples;
    unknown += result.unknown;
    spent += result.spent;
    optimizers.taken += result.optimizers.taken;
    optimizers.cold += result.optimizers.cold;
    optimizers.wrong += result.optimizers.wrong;
    world += result.world;
    seconds += result.virtual_seconds;
    if (result.failures.empty()) continue;
    ++bad;
    std::printf("seed %llu (%u sites, %u rounds) FAILED:\n", static_cast<unsigned long long>(options.seed),
                result.sites, result.rounds);
    for (const std::string& failure : result.failures) std::printf("  %s\n", failure.c_str());
    std::printf("  again: %s\n", sim::replay_command(options).c_str());
    std::fflush(stdout);
  }
  std::printf(
      "collab_sim: %llu commits, %llu faults, %llu forget commands, %llu processes given up and restarted, "
      "%llu triggers without a round, %llu rebases, %llu chunks held from earlier attempts, %llu optimizer states "
      "taken, %llu not had, %llu seen to be wrong, %llu sites that left with their budget spent, %llu answers of hubs, "
      "%llu calls that failed, %llu ranks whose collectives ended, %llu worlds of two parted, %.0f s of virtual "
      "time; of %llu samples trained it is not known of %llu (%.3f %%) whether they were counted; "
      "%llu of %llu runs failed\n",
      static_cast<unsigned long long>(commits), static_cast<unsigned long long>(faults),
      static_cast<unsigned long long>(forget_commands), static_cast<unsigned long long>(restarts),
      static_cast<unsigned long long>(skipped), static_cast<unsigned long long>(rebased),
      static_cast<unsigned long long>(carried), static_cast<unsigned long long>(optimizers.taken),
      static_cast<unsigned long long>(optimizers.cold), static_cast<unsigned long long>(optimizers.wrong),
      static_cast<unsigned long long>(spent), static_cast<unsigned long long>(world.answers),
      static_cast<unsigned long long>(world.errors), static_cast<unsigned long long>(world.ended),
      static_cast<unsigned long long>(world.parted), seconds, static_cast<unsigned long long>(samples),
      static_cast<unsigned long long>(unknown),
      samples == 0 ? 0.0 : 100.0 * static_cast<double>(unknown) / static_cast<double>(samples),
      static_cast<unsigned long long>(bad), static_cast<unsigned long long>(arguments->count));
  return bad == 0 ? 0 : 1;
}
