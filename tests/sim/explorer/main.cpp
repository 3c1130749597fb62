// collab_explorer: every order of few departures in which three sites and two candidates may agree on two rounds.
//
//   collab_explorer [--start agreed|split|joining|fresh|apart] [--fragments N] [--delays D] [--faults K]
//   [--kinds krwlxq] [--states N] [--beyond] [--complete]
//   collab_explorer [--start ...] --replay SCHEDULE      that one alone, step by step
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/sim/explorer/explorer.h"

namespace {

using namespace collab::sim;

constexpr const char* kUsage =
    "usage: collab_explorer [--start agreed|split|joining|fresh|apart] [--fragments N] [--delays D] [--faults K]\n"
    "                       [--kinds krwlxq] [--states N] [--failures N] [--beyond] [--complete]\n"
    "       collab_explorer [--start agreed|split|joining|fresh|apart] [--fragments N] --replay SCHEDULE\n";

constexpr std::uint64_t kMostFragments = 4;  // of so small a model

struct Arguments {
  ExploreOptions explore;
  std::string start = "agreed";
  std::optional<Schedule> replay;
  bool complete = false;  // what is cut off is a failure
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--beyond") {
      arguments.explore.beyond = true;
      continue;
    }
    if (name == "--complete") {
      arguments.complete = true;
      continue;
    }
    if (i + 1 >= argc) return std::nullopt;
    const std::string value = argv[++i];
    const auto number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--start") {
      const auto start = start_from(value);
      if (!start) return std::nullopt;
      arguments.start = value;
      arguments.explore.setup.start = *start;
    } else if (name == "--fragments") {
      if (number < 1 || number > kMostFragments) return std::nullopt;
      arguments.explore.setup.fragments = static_cast<std::uint32_t>(number);
    } else if (name == "--delays") {
      arguments.explore.delays = static_cast<std::uint32_t>(number);
    } else if (name == "--faults") {
      arguments.explore.faults = static_cast<std::uint32_t>(number);
    } else if (name == "--kinds") {
      arguments.explore.kinds = value;
    } else if (name == "--states") {
      arguments.explore.most_states = number;
    } else if (name == "--failures") {
      arguments.explore.most_failures = static_cast<std::uint32_t>(number);
    } else if (name == "--replay") {
      arguments.replay = schedule_from(value);
      if (!arguments.replay) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

int run_again(const Arguments& arguments) {
  const auto wrong = replay(arguments.explore.setup, *arguments.replay,
                            [](const std::string& line) { std::printf("%s\n", line.c_str()); });
  for (const std::string& line : wrong) std::printf("WRONG: %s\n", line.c_str());
  if (wrong.empty()) std::printf("nothing is wrong\n");
  return wrong.empty() ? 0 : 1;
}

void print_level(const Explorer::Bound& bound, const Explorer::Level& level) {
  const std::size_t left = level.waiting.size() - level.next;
  std::printf("%6u %6u %10zu %10llu %10llu %8.1f s  %s\n", bound.first, bound.second, level.next,
              static_cast<unsigned long long>(level.merged), static_cast<unsigned long long>(level.states),
              level.seconds, left == 0 ? "complete" : ("CUT OFF: " + std::to_string(left) + " schedules").c_str());
  std::fflush(stdout);
}

// What is complete, and what is not looked at.
void print_sum(const Explorer& explorer, const ExploreOptions& options, double seconds) {
  for (const auto& [bound, level] : explorer.levels()) {
    if (level.next == 0) print_level(bound, level);
  }
  std::printf(
      "collab_explorer: %llu states, %llu steps, the longest schedule has %u; %llu schedules end with all rounds, "
      "%llu without a quorum; %.1f s\n",
      static_cast<unsigned long long>(explorer.states()), static_cast<unsigned long long>(explorer.steps()),
      explorer.deepest(), static_cast<unsigned long long>(explorer.good_ends()),
      static_cast<unsigned long long>(explorer.ends_without_quorum()), seconds);
  for (std::uint32_t faults = 0; faults <= options.faults; ++faults) {
    std::uint32_t complete = 0;
    const auto is_complete = [&](std::uint32_t delays) {
      for (std::uint32_t k = 0; k <= faults; ++k) {
        const auto level = explorer.levels().find({delays, k});
        if (level == explorer.levels().end() || !level->second.complete()) return false;
      }
      return true;
    };
    while (is_complete(complete)) ++complete;
    if (complete > 0) std::printf("  complete: at most %u faults and %u delays\n", faults, complete - 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Arguments> arguments = parse(argc, argv);
  if (!arguments) {
    std::fprintf(stderr, "%s", kUsage);
    return 2;
  }
  if (arguments->replay) return run_again(*arguments);
  const ExploreOptions& options = arguments->explore;
  std::printf(
      "collab_explorer: start %s, %u fragments, up to %u delays%s and %u faults of kinds %s, at most %llu states\n",
      arguments->start.c_str(), options.setup.fragments, options.delays, options.beyond ? " and beyond" : "",
      options.faults, options.kinds.c_str(), static_cast<unsigned long long>(options.most_states));
  std::printf("delays faults  schedules     merged new states      time\n");
  const auto begin = std::chrono::steady_clock::now();
  Explorer explorer(options);
  const bool good = explorer.run(print_level);
  print_sum(explorer, options, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  for (const Explorer::Failure& failure : explorer.failures()) {
    for (const std::string& line : failure.wrong) std::printf("WRONG: %s\n", line.c_str());
    std::printf("  again: collab_explorer --start %s --fragments %u --replay %s\n", arguments->start.c_str(),
                options.setup.fragments, text_of(failure.schedule).c_str());
  }
  const bool complete = std::ranges::all_of(explorer.levels(), [](const auto& each) { return each.second.complete(); });
  if (arguments->complete && !complete) std::printf("WRONG: it is cut off, see above; --states is too low\n");
  return good && (complete || !arguments->complete) ? 0 : 1;
}
