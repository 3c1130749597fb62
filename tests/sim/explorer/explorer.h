// Every schedule of a world (world.h) with few departures from its rule, and each state once. This is delay-bounded
// scheduling (Emmi, Qadeer, Rakamaric, "Delay-Bounded Scheduling", POPL 2011), cut off at states that were seen.
//
// A schedule is run from its last departure on, until it comes to a state that was seen, or to an end. Each new state
// on the way gives the schedules with one more departure there. Schedules with fewer departures come first, so a state
// is first seen with the fewest delays that lead to it. A schedule is stored as the place where it departs from another
// one. Worlds are made anew, and a world that a row of schedules has in common is made once.
//
// Threads: one. Ownership: its states and schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/sim/explorer/world.h"

namespace collab::sim {

// (step, departure), ascending: "12d.40k"; none: "-".
using Schedule = std::vector<std::pair<std::uint32_t, char>>;
[[nodiscard]] std::string text_of(const Schedule& schedule);
[[nodiscard]] std::optional<Schedule> schedule_from(const std::string& text);

struct ExploreOptions {
  Beginning setup{};
  std::uint32_t delays = 3;
  std::uint32_t faults = 2;
  std::string kinds = "krwl";  // of faults
  std::uint64_t most_states = 1'000'000;
  bool beyond = false;  // more delays, up to that many states
  std::uint32_t most_failures = 1;
};

// What is wrong in a schedule that is run to its end; empty: nothing. A departure that cannot be, because the machines
// act otherwise by now, is left out. `log` as World's.
[[nodiscard]] std::vector<std::string> replay(const Beginning& setup, const Schedule& schedule,
                                              std::function<void(const std::string&)> log = {});

class Explorer {
 public:
  // Schedules with so many delays and faults.
  struct Level {
    std::vector<std::uint32_t> waiting{};  // schedules, from `next` on
    std::size_t next = 0;
    std::uint64_t merged = 0;  // came to a state that was seen
    std::uint64_t states = 0;
    double seconds = 0;
    [[nodiscard]] bool complete() const { return next == waiting.size(); }
  };
  using Bound = std::pair<std::uint32_t, std::uint32_t>;  // delays, faults
  struct Failure {
    Schedule schedule;
    std::vector<std::string> wrong;
  };

  explicit Explorer(ExploreOptions options);
  // True: nothing was found. `progress` is told of each level that has been left.
  bool run(const std::function<void(const Bound&, const Level&)>& progress = {});

  [[nodiscard]] const std::map<Bound, Level>& levels() const { return levels_; }
  [[nodiscard]] const std::vector<Failure>& failures() const { return failures_; }
  [[nodiscard]] std::uint64_t states() const { return seen_.size(); }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint32_t deepest() const { return deepest_; }  // steps of the longest schedule
  [[nodiscard]] std::uint64_t good_ends() const { return good_ends_; }
  [[nodiscard]] std::uint64_t ends_without_quorum() const { return ends_without_quorum_; }

 private:
  struct Branch {
    std::uint32_t parent = 0;
    std::uint32_t at = 0;  // in the parent's steps
    char how = '-';        // '-': the first, which departs nowhere
  };
  struct Cursor {
    std::uint32_t branch = 0;
    World world;
  };
  struct Hash {
    std::size_t operator()(const Digest& digest) const { return digest.lo; }
  };

  void explore(std::uint32_t branch, const Bound& bound);
  void run_on(World world, std::uint32_t branch, const Bound& bound);
  void branch_off(const World& world, std::uint32_t branch, const Bound& bound);
  void fail(std::uint32_t branch, std::vector<std::string> wrong);
  [[nodiscard]] std::optional<Bound> next_level() const;
  [[nodiscard]] bool over() const;
  // The world of a schedule after so many steps.
  [[nodiscard]] World& world_at(std::uint32_t branch, std::uint32_t at, std::size_t depth);
  [[nodiscard]] std::size_t depth_of(std::uint32_t branch) const;
  [[nodiscard]] Schedule schedule_of(std::uint32_t branch) const;

  ExploreOptions options_;
  std::vector<Branch> branches_;
  std::map<Bound, Level> levels_;
  std::vector<std::optional<Cursor>> cursors_;            // by departures
  std::unordered_map<Digest, std::uint32_t, Hash> seen_;  // in which schedule
  std::vector<Failure> failures_;
  std::uint64_t steps_ = 0;
  std::uint32_t deepest_ = 0;
  std::uint64_t good_ends_ = 0;
  std::uint64_t ends_without_quorum_ = 0;
};

}  // namespace collab::sim
