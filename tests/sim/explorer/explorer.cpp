#include "tests/sim/explorer/explorer.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string_view>

namespace collab::sim {
namespace {

constexpr std::string_view kDelays = "dD";

// What is wrong with a world that goes on no further.
std::vector<std::string> wrong_at_end(const World& world) {
  if (!world.can_agree()) return {};
  return {"nothing comes about any more, though most are here:\n" + world.story()};
}

}  // namespace

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const auto& [at, how] : schedule) text += (text.empty() ? "" : ".") + std::to_string(at) + how;
  return text.empty() ? "-" : text;
}

std::optional<Schedule> schedule_from(const std::string& text) {
  Schedule schedule;
  if (text == "-") return schedule;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    const unsigned long step = std::strtoul(at, &end, 10);
    if (end == at || *end == '\0') return std::nullopt;
    schedule.emplace_back(static_cast<std::uint32_t>(step), *end);
    at = end + 1;
    if (*at == '.') ++at;
  }
  return schedule;
}

std::vector<std::string> replay(const Beginning& setup, const Schedule& schedule,
                                std::function<void(const std::string&)> log) {
  World world(setup);
  world.log = std::move(log);
  std::set<Digest> seen;
  auto next = schedule.begin();
  for (;;) {
    if (!world.broken().empty()) return world.broken();
    if (next != schedule.end() && world.steps() == next->first) {
      const auto [at, how] = *next++;
      const bool possible = world.choices().find(how) != std::string::npos;
      if (possible) world.depart(how);
      if (!possible && world.log) world.log("there is no departure " + text_of({{at, how}}) + ": it is left out");
      continue;
    }
    if (next == schedule.end()) {
      if (world.is_done()) return {};
      if (world.is_stuck() || !seen.insert(world.digest()).second) return wrong_at_end(world);
    }
    if (!world.step()) return world.is_done() ? std::vector<std::string>{} : wrong_at_end(world);
  }
}

// ---- the search ------------------------------------------------------------------------------------

Explorer::Explorer(ExploreOptions options) : options_(std::move(options)) {
  branches_.push_back({});
  levels_[{0, 0}].waiting.push_back(0);
}

bool Explorer::over() const {
  return failures_.size() >= options_.most_failures || seen_.size() >= options_.most_states;
}

// Within the bounds the one with the fewest departures; beyond them the one with the fewest delays.
std::optional<Explorer::Bound> Explorer::next_level() const {
  std::optional<Bound> best;
  const auto order = [this](const Bound& bound) {
    return std::tuple(bound.first > options_.delays, bound.first + bound.second, bound.second);
  };
  for (const auto& [bound, level] : levels_) {
    if (level.complete() || (bound.first > options_.delays && !options_.beyond)) continue;
    if (!best || order(bound) < order(*best)) best = bound;
  }
  return best;
}

bool Explorer::run(const std::function<void(const Bound&, const Level&)>& progress) {
  while (const std::optional<Bound> bound = next_level()) {
    if (over()) break;
    Level& level = levels_.at(*bound);
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t states = seen_.size();
    cursors_.clear();
    while (!level.complete() && !over()) explore(level.waiting[level.next++], *bound);
    level.states += seen_.size() - states;
    level.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (progress) progress(*bound, level);
  }
  return failures_.empty();
}

void Explorer::explore(std::uint32_t index, const Bound& bound) {
  const Branch branch = branches_[index];
  if (branch.how == '-') return run_on(World(options_.setup), index, bound);
  World world = world_at(branch.parent, branch.at, depth_of(branch.parent));
  world.depart(branch.how);
  run_on(std::move(world), index, bound);
}

void Explorer::run_on(World world, std::uint32_t branch, const Bound& bound) {
  for (;; ++steps_) {
    deepest_ = std::max(deepest_, world.steps());
    if (std::vector<std::string> broken = world.broken(); !broken.empty()) return fail(branch, std::move(broken));
    const auto [known, fresh] = seen_.try_emplace(world.digest(), branch);
    if (!fresh && known->second != branch) {
      ++levels_.at(bound).merged;
      return;
    }
    if (world.is_done()) {
      ++good_ends_;
      return;
    }
    // It goes round in a circle, or is about to.
    bool ends = !fresh || world.is_stuck();
    if (!ends) {
      branch_off(world, branch, bound);
      ends = !world.step();
    }
    if (!ends) continue;
    std::vector<std::string> wrong = wrong_at_end(world);
    if (wrong.empty()) {
      ++ends_without_quorum_;
      return;
    }
    return fail(branch, std::move(wrong));
  }
}

void Explorer::branch_off(const World& world, std::uint32_t branch, const Bound& bound) {
  for (const char how : world.choices()) {
    const bool delay = kDelays.find(how) != std::string_view::npos;
    if (!delay && (bound.second >= options_.faults || options_.kinds.find(how) == std::string::npos)) continue;
    if (delay && bound.first >= options_.delays && !options_.beyond) continue;
    const Bound next = delay ? Bound{bound.first + 1, bound.second} : Bound{bound.first, bound.second + 1};
    levels_[next].waiting.push_back(static_cast<std::uint32_t>(branches_.size()));
    branches_.push_back({branch, world.steps(), how});
  }
}

void Explorer::fail(std::uint32_t branch, std::vector<std::string> wrong) {
  failures_.push_back({schedule_of(branch), std::move(wrong)});
}

// ---- worlds, made anew -----------------------------------------------------------------------------

std::size_t Explorer::depth_of(std::uint32_t branch) const {
  std::size_t depth = 0;
  for (; branches_[branch].how != '-'; branch = branches_[branch].parent) ++depth;
  return depth;
}

World& Explorer::world_at(std::uint32_t branch, std::uint32_t at, std::size_t depth) {
  if (cursors_.size() <= depth) cursors_.resize(depth + 1);
  std::optional<Cursor>& cursor = cursors_[depth];
  if (!cursor || cursor->branch != branch || cursor->world.steps() > at) {
    const Branch& from = branches_[branch];
    if (depth == 0) {
      cursor = Cursor{branch, World(options_.setup)};
    } else {
      cursor = Cursor{branch, world_at(from.parent, from.at, depth - 1)};
      cursor->world.depart(from.how);
    }
  }
  World& world = cursors_[depth]->world;
  while (world.steps() < at) world.step();
  return world;
}

Schedule Explorer::schedule_of(std::uint32_t branch) const {
  Schedule schedule;
  for (; branches_[branch].how != '-'; branch = branches_[branch].parent) {
    schedule.emplace_back(branches_[branch].at, branches_[branch].how);
  }
  std::ranges::reverse(schedule);
  return schedule;
}

}  // namespace collab::sim
