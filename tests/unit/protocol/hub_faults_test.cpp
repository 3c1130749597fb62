// Many seeds of a collective hub with faults at random moments: one result a step, no living rank left out, no hang, no
// memory kept. A failure names its seed.
#include <gtest/gtest.h>

#include "tests/unit/protocol/hub_world.h"

namespace collab::protocol {
namespace {

using testing::HubTestWorld;
using testing::kBeat;
using testing::kGrace;

constexpr GroupId kGroup{1};
constexpr std::uint64_t kSteps = 12;

struct Faults {
  bool kills = false;     // one rank dies
  bool hub_dies = false;  // the first hub dies; all ranks live or with `kills` one dies with it
  bool cuts = false;      // links fall and come back
};

[[nodiscard]] std::string part_of(std::uint32_t rank, std::uint64_t step) {
  return "part of " + std::to_string(rank) + " in " + std::to_string(step);
}

// At all that live, of every step.
void expect_one_result(HubTestWorld& world) {
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    const HubExchanged* first = nullptr;
    for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
      HubTestWorld::Rank& each = world.rank(rank);
      if (each.dead) continue;  // what it alone was told died with it
      const HubExchanged& mine = each.done.at(step);
      ASSERT_TRUE(mine.status.ok()) << "rank " << rank << " step " << step << ": " << mine.status.message();
      ASSERT_EQ(each.times[step], 1);
      if (first == nullptr) first = &mine;
      ASSERT_EQ(mine.absent, first->absent) << "step " << step << " at rank " << rank;
      for (std::uint32_t from = 0; from < world.size(); ++from) {
        const bool out = std::ranges::binary_search(mine.absent, from);
        ASSERT_TRUE(!out || world.rank(from).dead) << "rank " << from << " lives and was left out of " << step;
        const std::string expected = out || from == rank ? "" : part_of(from, step);
        ASSERT_EQ(HubTestWorld::text_of(mine.parts[from]), expected) << "rank " << rank << " from " << from;
      }
    }
  }
}

void run_seed(std::uint64_t seed, Faults faults) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  HubTestWorld world(seed, {"a", "a", "b", "c", "c"}, faults.hub_dies ? 2 : 1);
  std::vector<RankId> members;
  for (std::uint32_t i = 0; i < world.size(); ++i) members.emplace_back(i);
  world.open(kGroup, members);
  std::vector<std::uint64_t> asked(world.size(), 0);
  const std::uint64_t fault_step = 1 + world.prng().below(kSteps - 2);
  std::uint64_t moment = world.prng().below(60);
  const auto victim = static_cast<std::uint32_t>(world.prng().below(world.size()));
  bool struck = false;

  const auto advance = [&] {
    for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
      HubTestWorld::Rank& each = world.rank(rank);
      if (each.dead || asked[rank] == kSteps || each.done.size() < asked[rank] || world.prng().chance(0.5)) continue;
      const std::uint64_t step = ++asked[rank];
      world.at_client(rank, HubRequest{step,
                                       kGroup,
                                       0,
                                       "all_reduce " + std::to_string(step),
                                       "",
                                       wire::Absence::kProceeds,
                                       0,
                                       true,
                                       false,
                                       {},
                                       world.bytes(part_of(rank, step)),
                                       std::chrono::seconds(60)});
    }
    if (!struck && *std::ranges::max_element(asked) >= fault_step && moment-- == 0) {
      struck = true;
      if (faults.kills) world.kill_rank(victim);
      if (faults.hub_dies) world.kill_hub(0);
    }
    if (faults.cuts && world.prng().chance(0.01)) {
      world.cut_link_of(static_cast<std::uint32_t>(world.prng().below(world.size())));
    }
  };
  const auto finished = [&] {
    advance();
    for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
      if (!world.rank(rank).dead && world.rank(rank).done.size() < kSteps) return false;
    }
    return true;
  };
  const bool ended = world.run_until(finished, 6 * kGrace + std::chrono::seconds(30));
  for (std::uint32_t rank = 0; rank < world.size() && !ended; ++rank) {
    HubTestWorld::Rank& each = world.rank(rank);
    ADD_FAILURE() << "rank " << rank << (each.dead ? " is dead, " : " ") << each.done.size() << " of " << asked[rank]
                  << " done; " << (each.notes.empty() ? "" : each.notes.back()) << "; " << each.broken.message();
  }
  ASSERT_TRUE(ended);

  expect_one_result(world);
  if (::testing::Test::HasFatalFailure()) return;
  world.run_for(2 * kGrace);
  for (std::size_t hub = 0; hub < (faults.hub_dies ? 2U : 1U); ++hub) {
    EXPECT_EQ(world.hub(hub) == nullptr ? 0 : world.hub(hub)->bytes_held(), 0U);
  }
}

void run_seeds(Faults faults) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    run_seed(seed, faults);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(HubFaults, RunsWithoutFaultsAreSound) { run_seeds({}); }
TEST(HubFaults, LinksFallAndComeBack) { run_seeds({.cuts = true}); }
TEST(HubFaults, ARankDiesAtAnyMoment) { run_seeds({.kills = true}); }
TEST(HubFaults, ARankDiesWhileLinksFall) { run_seeds({.kills = true, .cuts = true}); }
TEST(HubFaults, TheHubDiesAtAnyMoment) { run_seeds({.hub_dies = true}); }
TEST(HubFaults, TheHubDiesWhileLinksFall) { run_seeds({.hub_dies = true, .cuts = true}); }
TEST(HubFaults, TheHubAndARankDieAtOnce) { run_seeds({.kills = true, .hub_dies = true}); }

}  // namespace
}  // namespace collab::protocol
