// The collective hub, call by call: what each rank is told if all come, if they differ, and if some are gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/protocol/hub_world.h"

namespace collab::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HubTestWorld;
using ::testing::IsEmpty;
using testing::kBeat;
using testing::kGrace;

constexpr GroupId kGroup{1};
constexpr Duration kSoon = std::chrono::seconds(1);
const auto kAll = [](std::uint64_t) { return std::set<std::string>{"paris", "oslo", "bern"}; };

class CollectiveHubTest : public ::testing::Test {
 protected:
  HubTestWorld world{1, {"paris", "paris", "oslo", "bern"}, 2};

  void SetUp() override { world.open(kGroup, all()); }
  [[nodiscard]] std::vector<RankId> all() {
    std::vector<RankId> ranks;
    for (std::uint32_t i = 0; i < world.size(); ++i) ranks.emplace_back(i);
    return ranks;
  }
  HubRequest request(std::uint64_t id, const std::string& operation, wire::Absence absence, const std::string& part) {
    return {id, kGroup, 0, operation, "[3]", absence, 0, true, false, {}, world.bytes(part), {}};
  }
  void reduce(std::uint32_t rank, std::uint64_t id) {
    world.at_client(rank, request(id, "all_reduce", wire::Absence::kProceeds, "part " + std::to_string(rank)));
  }
  void gather(std::uint32_t rank, std::uint64_t id) {
    world.at_client(rank, request(id, "all_gather", wire::Absence::kFails, "part " + std::to_string(rank)));
  }
  [[nodiscard]] bool done(std::uint32_t rank, std::uint64_t id) { return world.rank(rank).done.contains(id); }
  [[nodiscard]] bool all_done(std::uint64_t id, const std::vector<std::uint32_t>& ranks) {
    return std::ranges::all_of(ranks, [&](std::uint32_t rank) { return done(rank, id); });
  }
  [[nodiscard]] std::string error(std::uint32_t rank, std::uint64_t id) {
    return world.rank(rank).done.at(id).status.message();
  }
  [[nodiscard]] std::vector<std::string> parts(std::uint32_t rank, std::uint64_t id) {
    std::vector<std::string> texts;
    for (const Payload& part : world.rank(rank).done.at(id).parts) texts.push_back(HubTestWorld::text_of(part));
    return texts;
  }
};

TEST_F(CollectiveHubTest, EverybodyGetsTheOthersParts) {
  for (std::uint32_t rank = 0; rank < 4; ++rank) gather(rank, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2, 3}); }, kSoon));
  EXPECT_THAT(parts(2, 1), ElementsAre("part 0", "part 1", "", "part 3"));
  EXPECT_THAT(world.rank(2).done.at(1).absent, IsEmpty());
  world.run_for(kSoon);
  EXPECT_EQ(world.hub(0)->bytes_held(), 0U);
}

TEST_F(CollectiveHubTest, SplitPartsGoToTheirMembersAndNobodyElse) {
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    HubRequest scatter = request(1, "scatter", wire::Absence::kNeedsRoot, rank == 0 ? "0123345" : "");
    if (rank == 0) scatter.splits = {1, 2, 0, 4};
    world.at_client(rank, scatter);
  }
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2, 3}); }, kSoon));
  EXPECT_EQ(parts(1, 1)[0], "12");
  EXPECT_EQ(parts(2, 1)[0], "");
  EXPECT_EQ(parts(3, 1)[0], "3345");
}

TEST_F(CollectiveHubTest, ARankThatWantsNothingGetsNothing) {
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    HubRequest each = request(1, "gather", wire::Absence::kFails, "part " + std::to_string(rank));
    each.wants = rank == 2;
    world.at_client(rank, each);
  }
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2, 3}); }, kSoon));
  EXPECT_THAT(parts(2, 1), ElementsAre("part 0", "part 1", "", "part 3"));
  EXPECT_THAT(parts(0, 1), ElementsAre("", "", "", ""));
}

TEST_F(CollectiveHubTest, DifferentCallsAreNamedToAllAndTheGroupGoesOn) {
  reduce(0, 1);
  gather(1, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1}); }, kSoon));
  reduce(2, 1);
  reduce(3, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {2, 3}); }, kSoon));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(error(rank, 1),
                HasSubstr("rank 0 of paris is in all_reduce [3], rank 1 of paris is in all_gather [3]"));
    reduce(rank, 2);
  }
  ASSERT_TRUE(world.run_until([&] { return all_done(2, {0, 1, 2, 3}); }, kSoon));
  EXPECT_EQ(error(3, 2), "");
}

TEST_F(CollectiveHubTest, DifferentCallsInTwinGroupsAreNamedToo) {
  const GroupId leaders{kGroup.value ^ 1};
  world.open(leaders, {RankId(0), RankId(2), RankId(3)});
  const auto call = [&](std::uint32_t rank, GroupId group, std::uint64_t number, const std::string& operation) {
    HubRequest each = request(number, operation, wire::Absence::kProceeds, "x");
    each.group = group;
    each.call = number;
    world.at_client(rank, each);
  };
  // The second call may overtake the first: they are in different groups.
  for (const std::uint32_t rank : {0U, 2U}) call(rank, leaders, 1, "all_reduce (sum)");
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) call(rank, kGroup, 2, "all_gather");
  ASSERT_TRUE(world.run_until([&] { return all_done(2, {0, 1, 2, 3}); }, kSoon));
  call(3, leaders, 1, "all_reduce (sum)");
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 2, 3}); }, kSoon));
  EXPECT_EQ(error(3, 1) + error(1, 2), "");

  call(1, kGroup, 3, "all_gather");
  call(2, leaders, 3, "all_reduce (sum)");
  ASSERT_TRUE(world.run_until([&] { return all_done(3, {1, 2}); }, kSoon));
  call(0, leaders, 3, "all_reduce (sum)");
  call(3, kGroup, 3, "all_gather");
  ASSERT_TRUE(world.run_until([&] { return all_done(3, {0, 3}); }, kSoon));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(error(rank, 3), HasSubstr("rank 1 of paris is in all_gather [3]"));
    EXPECT_THAT(error(rank, 3), HasSubstr("rank 2 of oslo is in all_reduce (sum) [3]"));
    call(rank, kGroup, 4, "barrier");  // nobody is left waiting
  }
  ASSERT_TRUE(world.run_until([&] { return all_done(4, {0, 1, 2, 3}); }, kSoon));
  EXPECT_THAT(error(2, 4), HasSubstr("rank 1 of paris is in all_gather [3]"));
}

TEST_F(CollectiveHubTest, ReportsTheRanksThatWaitInACallAndTheMissingOnes) {
  reduce(0, 1);
  reduce(3, 1);
  world.run_for(kSoon);
  const CallsUnderWay calls = world.hub(0)->calls_under_way(kAll);
  ASSERT_EQ(calls.sites.size(), 2U);
  EXPECT_EQ(calls.sites.at("bern").call, "all_reduce [3]");
  EXPECT_THAT(calls.sites.at("bern").awaits, ElementsAre("oslo", "paris"));
  world.kill_rank(2);
  reduce(1, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 3}); }, kGrace + kBeat + kSoon));
  EXPECT_THAT(world.hub(0)->calls_under_way(kAll).sites, IsEmpty());
}

TEST_F(CollectiveHubTest, CallsAreReportedOnlyOfSitesThatClaimTheirWorld) {
  reduce(0, 1);
  reduce(3, 1);
  world.run_for(kSoon);
  const auto bern = [](std::uint64_t) { return std::set<std::string>{"bern"}; };
  const CallsUnderWay calls = world.hub(0)->calls_under_way(bern);
  ASSERT_EQ(calls.sites.size(), 1U);
  EXPECT_THAT(calls.sites.at("bern").awaits, ElementsAre("oslo", "paris")) << "whoever they say they are";
  EXPECT_THAT(world.hub(0)->calls_under_way([](auto) { return std::set<std::string>(); }).sites, IsEmpty());
}

TEST_F(CollectiveHubTest, ReportsWhoseTrainingWaitsInACall) {
  const auto come = [&](std::uint32_t rank, const std::string& operation) {
    world.at_client(rank, request(1, operation, wire::Absence::kProceeds, "x"));
  };
  come(0, std::string(kStandsStill) + "all_reduce (max)");
  world.run_for(kSoon);
  EXPECT_TRUE(world.hub(0)->calls_under_way(kAll).sites.at("paris").stands_still);
  for (const std::uint32_t rank : {1U, 2U, 3U}) come(rank, std::string(kStandsStill) + "all_reduce (max)");
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2, 3}); }, kSoon));
  world.at_client(0, request(2, "barrier", wire::Absence::kProceeds, ""));
  world.run_for(kSoon);
  EXPECT_FALSE(world.hub(0)->calls_under_way(kAll).sites.at("paris").stands_still) << "it may be a thread's";
}

TEST_F(CollectiveHubTest, ATimeOutNamesWhoDidNotCome) {
  for (const std::uint32_t rank : {0U, 2U}) {
    HubRequest late = request(1, "all_reduce", wire::Absence::kProceeds, "x");
    late.timeout = std::chrono::seconds(2);
    world.at_client(rank, late);
  }
  const TimePoint begun = world.now();
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 2}); }, std::chrono::seconds(4)));
  EXPECT_LT(world.now() - begun, std::chrono::milliseconds(2500));
  EXPECT_THAT(error(2, 1), HasSubstr("all_reduce [3] was given up after 2 s"));
  EXPECT_THAT(error(2, 1), HasSubstr("rank 1 of paris, rank 3 of bern did not reach it in time"));
  reduce(1, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {1}); }, kSoon));
  EXPECT_THAT(error(1, 1), HasSubstr("was given up"));
}

TEST_F(CollectiveHubTest, SumsContinueWithoutALostRankAndGathersNameIt) {
  world.run_for(kSoon);
  world.kill_rank(3);
  const TimePoint died = world.now();
  for (const std::uint32_t rank : {0U, 1U, 2U}) reduce(rank, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2}); }, kGrace + kBeat + kSoon));
  EXPECT_LE(world.now() - died, kGrace + kBeat + std::chrono::milliseconds(100));
  EXPECT_THAT(parts(1, 1), ElementsAre("part 0", "", "part 2", ""));
  EXPECT_THAT(world.rank(1).done.at(1).absent, ElementsAre(3U));
  for (const std::uint32_t rank : {0U, 1U, 2U}) gather(rank, 2);
  ASSERT_TRUE(world.run_until([&] { return all_done(2, {0, 1, 2}); }, kSoon));
  EXPECT_THAT(error(0, 2), HasSubstr("rank 3 of bern is gone: nothing heard from it for 3 s (COLLAB_LINK_GRACE)"));
}

TEST_F(CollectiveHubTest, APartThatCameBeforeItsRankDiedCounts) {
  reduce(3, 1);
  world.run_for(kSoon);
  world.kill_rank(3);
  world.run_for(2 * kGrace);
  for (const std::uint32_t rank : {0U, 1U, 2U}) reduce(rank, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2}); }, kSoon));
  EXPECT_THAT(parts(0, 1), ElementsAre("", "part 1", "part 2", "part 3"));
}

TEST_F(CollectiveHubTest, ARankWithNothingToGiveIsNotWaitedFor) {
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    HubRequest each = request(1, "all_reduce", wire::Absence::kProceeds, "part " + std::to_string(rank));
    each.absent = rank == 2;
    if (rank == 2) each.payload = {};
    world.at_client(rank, each);
  }
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2, 3}); }, kSoon));
  EXPECT_THAT(world.rank(0).done.at(1).absent, ElementsAre(2U));
}

TEST_F(CollectiveHubTest, ALinkThatIsBackWithinTheGraceLosesNothing) {
  for (const std::uint32_t rank : {0U, 1U, 2U}) reduce(rank, 1);
  world.run_for(kSoon);
  world.cut_link_of(1);
  world.cut_link_of(3);
  reduce(3, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2, 3}); }, kSoon));
  EXPECT_THAT(parts(1, 1), ElementsAre("part 0", "", "part 2", "part 3"));
}

TEST_F(CollectiveHubTest, ASilentRankIsLeftOutWithTheReason) {
  world.run_for(kSoon);
  world.pause(2, true);
  for (const std::uint32_t rank : {0U, 1U, 3U}) reduce(rank, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 3}); }, kGrace + kBeat + kSoon));
  world.pause(2, false);
  reduce(2, 1);
  ASSERT_TRUE(world.run_until([&] { return !world.rank(2).broken.ok(); }, 3 * kGrace));
  EXPECT_THAT(world.rank(2).broken.message(), HasSubstr("rank 2 of oslo was left out of its world's collectives"));
  EXPECT_TRUE(done(2, 1));
}

TEST_F(CollectiveHubTest, ASuccessorGivesTheSameResult) {
  // Rank 0 has its result; the links of the others fall before theirs come.
  for (const std::uint32_t rank : {1U, 2U, 3U}) reduce(rank, 1);
  world.run_for(kSoon);
  reduce(0, 1);
  ASSERT_TRUE(world.run_until([&] { return done(0, 1) || done(1, 1) || done(2, 1) || done(3, 1); }, kSoon));
  std::uint32_t first = 0;
  while (!done(first, 1)) ++first;
  world.kill_hub(0);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1, 2, 3}); }, 3 * kGrace));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(error(rank, 1), "");
    EXPECT_THAT(world.rank(rank).done.at(1).absent, IsEmpty());
  }
  for (std::uint32_t rank = 0; rank < 4; ++rank) gather(rank, 2);
  EXPECT_TRUE(world.run_until([&] { return all_done(2, {0, 1, 2, 3}); }, kSoon));
}

TEST_F(CollectiveHubTest, CallsFailWithTheReasonIfAllHubsAreGone) {
  world.run_for(kSoon);
  world.kill_hub(0);
  world.kill_hub(1);
  const TimePoint died = world.now();
  reduce(0, 1);
  ASSERT_TRUE(world.run_until([&] { return done(0, 1); }, 4 * kGrace));
  EXPECT_LE(world.now() - died, 2 * kGrace + kBeat);
  EXPECT_THAT(error(0, 1), HasSubstr("no coordinator answers at hub0, hub1 for 6 s"));
  reduce(0, 2);
  EXPECT_TRUE(done(0, 2));
}

TEST_F(CollectiveHubTest, AReceiverFindsItsSender) {
  const GroupId pair{77};
  world.at_client(3, ResolveSender{5, kGroup, 9, {}});
  world.run_for(kSoon);
  world.open(pair, {RankId(1), RankId(3)}, kGroup, 9);
  HubRequest send = request(1, "send", wire::Absence::kFails, "letter");
  send.group = pair;
  world.at_client(1, send);
  ASSERT_TRUE(world.run_until([&] { return world.rank(3).resolved.contains(5); }, kSoon));
  EXPECT_EQ(world.rank(3).resolved.at(5).from, 1U);
  send.payload = {};
  world.at_client(3, send);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {1, 3}); }, kSoon));
  EXPECT_THAT(parts(3, 1), ElementsAre("letter", ""));
}

TEST_F(CollectiveHubTest, ARankThatLeavesIsNotWaitedFor) {
  world.run_for(kSoon);
  EXPECT_THAT(world.hub(0)->present(),
              ElementsAre("rank 0 of paris", "rank 1 of paris", "rank 2 of oslo", "rank 3 of bern"));
  for (const std::uint32_t rank : {2U, 3U}) world.at_client(rank, HubLeave{"the end"});
  for (const std::uint32_t rank : {0U, 1U}) reduce(rank, 1);
  ASSERT_TRUE(world.run_until([&] { return all_done(1, {0, 1}); }, kSoon));
  EXPECT_THAT(world.hub(0)->present(), ElementsAre("rank 0 of paris", "rank 1 of paris"));
}

TEST_F(CollectiveHubTest, StrangersAreRefused) {
  wire::Enter enter{"day-run", 7, RankId(0), {"paris"}, {0}, 1, false, AcceptorId(1)};
  auto actions = world.hub(0)->step(world.now(), HubReceived{LinkId(900), enter, nullptr});
  (void)world.hub(0)->step(world.now(), Closed{LinkId(900), {}});
  EXPECT_FALSE(world.hub(0)->knows(LinkId(900)));
  enter.swarm = "night-run";
  world.run_for(kSoon);
  actions = world.hub(0)->step(world.now(), HubReceived{LinkId(901), enter, nullptr});
  EXPECT_TRUE(world.hub(0)->knows(LinkId(901))) << "what else comes by it is not for the coordinator of rounds";
  EXPECT_TRUE(world.hub(0)->step(world.now(), HubReceived{LinkId(901), enter, nullptr}).empty());
  (void)world.hub(0)->step(world.now(), Closed{LinkId(901), {}});
  EXPECT_FALSE(world.hub(0)->knows(LinkId(901)));
}

}  // namespace
}  // namespace collab::protocol
