// What a hub holds for its ranks is bounded, for one and for all, whatever they say; what is taken is given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "core/protocol/collectives/hub_client.h"
#include "core/wire/limits.h"
#include "tests/unit/protocol/hub_fixture.h"

namespace collab::protocol {
namespace {

using ::testing::AllOf;
using testing::groups;
using ::testing::HasSubstr;
using testing::HubFixture;
using testing::kMiB;
using testing::ranks;

// ---- parts -----------------------------------------------------------------------------------------

TEST(HubBounds, APartIsAtMostSixteenMiB) {
  HubFixture hub;
  hub.gather(2, groups(2));
  EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(2)), kMaxHubPart), "");
  EXPECT_THAT(hub.says(0, HubFixture::contribute(GroupId(4)), kMaxHubPart + 1),
              HasSubstr("rank 0 of site0 contributes 16777217 bytes to sum [4]: a part is at most 16 MiB"));
  EXPECT_EQ(hub.hub().bytes_held(), kMaxHubPart);
}

TEST(HubBounds, AStepCarriesAtMostSixtyFourMiB) {
  HubFixture hub;
  hub.gather(8, groups(1));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(hub.says(rank, HubFixture::contribute(GroupId(2)), 16 * kMiB), "");
  }
  EXPECT_THAT(
      hub.says(4, HubFixture::contribute(GroupId(2)), 9 * kMiB),
      HasSubstr("to which others have contributed 64 MiB: a step carries at most 64 MiB, 8 MiB for each of 8 members"));
  EXPECT_EQ(hub.says(5, HubFixture::contribute(GroupId(2)), 8 * kMiB), "") << "it is within its share of the step";
  EXPECT_EQ(hub.hub().bytes_held(), 72 * kMiB);
}

TEST(HubBounds, ARankRegainsItsShareOnceItsPartsAreTaken) {
  HubFixture hub;
  hub.gather(2, groups(9));
  std::uint64_t group = 2;
  for (; group <= 14; group += 2) EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(group)), 16 * kMiB), "");
  for (group = 2; group <= 4; group += 2) {
    EXPECT_EQ(hub.says(1, HubFixture::contribute(GroupId(group))), "");
    for (const std::uint32_t rank : {0U, 1U}) EXPECT_EQ(hub.says(rank, wire::ResultAck{GroupId(group), 1, {}}), "");
  }
  EXPECT_EQ(hub.hub().bytes_held(), 5 * 16 * kMiB);
  for (group = 16; group <= 18; group += 2)
    EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(group)), 16 * kMiB), "");
  EXPECT_THAT(hub.says(0, HubFixture::contribute(GroupId(2), 2), 16 * kMiB),
              HasSubstr("of its parts are held until others take them: at most 128 MiB are held for one rank"));
}

TEST(HubBounds, ManySmallPartsCountForMoreThanTheirBytes) {
  HubFixture hub;
  (void)hub.says(0, HubFixture::enter(0, 2));
  std::size_t brought = 0;
  for (std::uint64_t group = 2; group <= 60'000; group += 2, ++brought) {
    if (!hub.says(0, wire::Assemble{GroupId(group), ranks(2)}).empty()) break;
    if (!hub.says(0, HubFixture::contribute(GroupId(group)), 1).empty()) break;
  }
  EXPECT_GT(brought, 10'000U);
  EXPECT_LE(brought * kPartCost, kMaxRankParts);
}

TEST(HubBounds, ARankThatContributesAgainIsCountedOnce) {
  HubFixture hub;
  hub.gather(2, groups(1));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(2)), 16 * kMiB), "");
  EXPECT_EQ(hub.hub().bytes_held(), 16 * kMiB);
}

// Ranks 0 to 7 fill the hub; the others have their share all the same.
TEST(HubBounds, ARankThatFillsTheHubTakesNothingFromAnothersShare) {
  constexpr std::uint32_t kRanks = 16;
  HubFixture hub;
  hub.gather(kRanks, groups(8));
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    for (const GroupId group : groups(8)) EXPECT_EQ(hub.says(rank, HubFixture::contribute(group), 4 * kMiB), "");
  }
  EXPECT_EQ(hub.hub().bytes_held(), 256 * kMiB);
  std::map<std::uint32_t, GroupId> crowded_out;  // by rank, the last one
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    for (std::uint64_t group = 100; group < 116; group += 2) {
      (void)hub.says(rank, wire::Assemble{GroupId(group + 20 * rank), ranks(kRanks)});
      const std::size_t held = hub.hub().bytes_held();
      EXPECT_EQ(hub.says(rank, HubFixture::contribute(GroupId(group + 20 * rank)), 8 * kMiB), "");
      if (hub.hub().bytes_held() == held) crowded_out[rank] = GroupId(group + 20 * rank);
    }
  }
  ASSERT_FALSE(crowded_out.empty());
  const auto [crowded, without_bytes] = *crowded_out.begin();
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == crowded) continue;
    (void)hub.says(rank, wire::Assemble{without_bytes, ranks(kRanks)});
    (void)hub.says(rank, HubFixture::contribute(without_bytes));
  }
  EXPECT_THAT(hub.error(), HasSubstr("of at most 512 MiB, and a rank's share is then 32 MiB"));
  EXPECT_LE(hub.hub().bytes_held(), kMaxHubParts);
  for (std::uint32_t rank = 8; rank < kRanks; ++rank) {
    for (std::uint64_t group = 2; group <= 14; group += 2) {
      EXPECT_EQ(hub.says(rank, HubFixture::contribute(GroupId(group)), 4 * kMiB), "") << rank << " in " << group;
    }
  }
}

TEST(HubBounds, AStepThatNobodyDecidedIsNotTaken) {
  HubFixture hub;
  hub.gather(2, groups(1));
  for (std::uint64_t step = 1; step < 100; ++step) {
    const std::string why = hub.says(0, HubFixture::contribute(GroupId(2), step), kMiB);
    if (step == 1) {
      EXPECT_EQ(why, "");
    } else {
      EXPECT_EQ(why, step == 2 ? "step 2 follows 0 [hub.step-order]" : "");  // the link is gone after that
    }
    (void)hub.says(0, wire::ResultAck{GroupId(2), step, {}});
  }
  EXPECT_EQ(hub.hub().bytes_held(), kMiB);
}

// It computes for half an hour; another asks for a time-out of a millisecond each time.
TEST(HubBounds, ARankFailsNoMoreStepsThanAnotherCanHold) {
  HubFixture hub;
  hub.gather(2, groups(1));
  std::uint64_t failed = 0;
  for (int seconds = 0; seconds < 1800; ++seconds) {
    wire::Contribute part = HubFixture::contribute(GroupId(2), failed + 1);
    part.timeout_ms = 1;
    EXPECT_EQ(hub.says(0, part), "");
    hub.pass(std::chrono::seconds(1));
    const std::string error = hub.error();
    for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, wire::Heartbeat{});
    if (error.empty()) continue;
    ++failed;
    EXPECT_EQ(hub.says(0, wire::ResultAck{GroupId(2), failed, {}}), "");
  }
  EXPECT_GE(failed, 8U);
  EXPECT_LT(failed, kMaxHeldOfGroup);
}

TEST(HubBounds, BuffersOfTakenStepsGoBack) {
  HubFixture hub;
  hub.gather(4, groups(4));
  for (std::uint64_t step = 1; step <= 20; ++step) {
    for (const GroupId group : groups(4)) {
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(hub.says(rank, HubFixture::contribute(group, step), 4 * kMiB), "");
      }
      for (std::uint32_t rank = 0; rank < 4; ++rank) (void)hub.says(rank, wire::ResultAck{group, step, {}});
    }
  }
  EXPECT_EQ(hub.hub().bytes_held(), 0U);
  EXPECT_LE(hub.pool_bytes(), 20 * kMiB);
  hub.trim();
  EXPECT_EQ(hub.pool_bytes(), 0U);
}

// Four parts of every rank fit, whatever the groups, and no step or part is too long.
TEST(HubBounds, StepsFitTheHub) {
  for (std::size_t world = 2; world <= 4096; world += 1 + world / 2) {
    for (std::size_t members = 2; members <= std::min<std::size_t>(world, 500); members += 1 + members / 2) {
      const std::size_t gathered = step_bytes(world, members, members, false);
      const std::size_t scattered = step_bytes(world, members, 1, true);
      const std::size_t exchanged = step_bytes(world, members, members, true);
      const std::size_t part = std::max({gathered, scattered * members, exchanged * members});
      ASSERT_LE(part, kMaxHubPart);
      ASSERT_LE(4 * (part + kPartCost + 8 * members) * world, kMaxHubParts)
          << world << " ranks, a group of " << members;
      ASSERT_LE(gathered * members, kMaxHubStep);
      ASSERT_LE(exchanged * members * members, kMaxHubStep);
      ASSERT_GT(exchanged, 0U);
    }
  }
  EXPECT_EQ(step_bytes(4, 2, 2, false), 16 * kMiB);
  EXPECT_EQ(step_bytes(64, 64, 64, false), kMiB);
}

// ---- what it remembers -----------------------------------------------------------------------------

TEST(HubBounds, GroupsOfManyMembersAreCounted) {
  constexpr std::uint32_t kRanks = wire::kMaxRanks;
  HubFixture hub;
  (void)hub.says(0, HubFixture::enter(0, kRanks));
  (void)hub.says(1, HubFixture::enter(1, kRanks));
  std::uint64_t opened = 0;
  std::string why;
  while (why.empty()) why = hub.says(0, wire::Assemble{GroupId(2 + 2 * opened++), ranks(kRanks)});
  EXPECT_THAT(why, HasSubstr("asks this coordinator to remember a group of 65536 ranks"));
  EXPECT_LE(opened, 4U);
  EXPECT_EQ(hub.says(1, wire::Assemble{GroupId(1002), ranks(kRanks)}), "");
}

TEST(HubBounds, GroupsThatARankNamesAreCounted) {
  HubFixture hub;
  wire::Enter everything = HubFixture::enter(0, 2);
  for (std::uint64_t i = 0; i < wire::kMaxGroups; ++i) everything.held.push_back({GroupId(i), 1, {1, 1}});
  everything.closed.assign(10, GroupId(1));
  EXPECT_THAT(hub.says(0, everything), HasSubstr("65546 steps and groups that it names"));

  std::uint64_t next = 0;
  for (int times = 0; times < 20; ++times) {  // others each time: what it named before is forgotten
    wire::Enter each = HubFixture::enter(0, 2);
    for (int i = 0; i < 60'000; ++i) each.completed.push_back({GroupId(++next), 1});
    EXPECT_EQ(hub.says(0, each), "");
  }
}

TEST(HubBounds, NoRankHoldsMoreOfAGroupThanAClientMay) {
  HubFixture hub;
  wire::Enter greedy = HubFixture::enter(0, 2);
  for (std::uint64_t step = 1; step <= kMaxHeldOfGroup + 1; ++step) greedy.held.push_back({GroupId(2), step, {1, 1}});
  EXPECT_EQ(hub.says(0, greedy), "");
  greedy.held.push_back({GroupId(2), 1000, {1, 1}});
  EXPECT_THAT(hub.says(0, greedy), HasSubstr("holds more than 65 results of one group [hub.bad-memory]"));
}

TEST(HubBounds, StepsThatAreOnlyHeldAreForgotten) {
  HubFixture hub;
  (void)hub.says(0, HubFixture::enter(0, 2));
  EXPECT_EQ(hub.says(0, wire::Assemble{GroupId(2), ranks(2)}), "");
  std::uint64_t step = 0;
  for (int times = 0; times < 100; ++times) {
    wire::Enter again = HubFixture::enter(0, 2);
    for (std::size_t i = 0; i < kMaxHeldOfGroup; ++i) again.held.push_back({GroupId(2), ++step, {1, 1}});
    EXPECT_EQ(hub.says(0, again), "");
    ASSERT_LE(hub.hub().steps_known(), kMaxHeldOfGroup);
    hub.pass(std::chrono::seconds(1));
  }
}

// Whether the others are asked for promises of a higher ballot.
[[nodiscard]] bool raises(HubFixture& hub, std::uint32_t rank, std::uint64_t term, std::uint32_t sites) {
  wire::Enter message = HubFixture::enter(rank, 4, 1, sites);
  message.promised = {term, 9};
  EXPECT_EQ(hub.says(rank, message), "");
  return hub.sent() > 1;
}

TEST(HubBounds, RanksOfOneSiteRaiseABallotTogetherAsOftenAsOne) {
  HubFixture hub;
  hub.gather(4, {});
  std::uint64_t term = 100;
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(raises(hub, i % 2 * 2, term += 10, 2));
  EXPECT_FALSE(raises(hub, 0, term += 10, 2));
  EXPECT_FALSE(raises(hub, 2, term += 10, 2));
  EXPECT_TRUE(raises(hub, 1, term += 10, 2)) << "of another site";
  for (int i = 0; i < 2; ++i) {
    hub.pass(std::chrono::seconds(30));
    for (std::uint32_t rank = 0; rank < 4; ++rank) (void)hub.says(rank, wire::Heartbeat{1, false});
  }
  EXPECT_TRUE(raises(hub, 2, term += 10, 2));
}

TEST(HubBounds, AWorldRaisesItsBallotEightTimesThenOnceAGrace) {
  HubFixture hub;
  for (std::uint32_t rank = 0; rank < 4; ++rank) (void)hub.says(rank, HubFixture::enter(rank, 4, 1, 4));
  std::uint64_t term = 100;
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(raises(hub, i % 4, term += 10, 4));
  for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_FALSE(raises(hub, rank, term += 10, 4));
}

TEST(HubBounds, SendersThatAreSoughtAreCounted) {
  HubFixture hub;
  hub.gather(2, groups(1));
  std::uint32_t tag = 0;
  std::string why;
  while (why.empty() && tag < 1'000'000) why = hub.says(0, wire::ResolveSender{GroupId(2), tag++});
  EXPECT_THAT(why, HasSubstr("another sender that it looks for"));
  EXPECT_LE(tag, kMaxRankMemory / kEntryCost + 1);
  EXPECT_EQ(hub.says(1, wire::ResolveSender{GroupId(2), 7}), "");
}

TEST(HubBounds, ClosedGroupsAreCounted) {
  HubFixture hub;
  hub.gather(2, groups(1));
  std::uint64_t group = 1000;
  std::string why;
  while (why.empty() && group < 1'000'000) why = hub.says(0, wire::Disband{GroupId(group++)});
  EXPECT_THAT(why, HasSubstr("another group that it has closed"));
}

// As a training does that makes a group for each step.
TEST(HubBounds, GroupsThatAllHaveClosedCostNothing) {
  HubFixture hub;
  hub.gather(2, {});
  for (std::uint64_t group = 2; group < 3 * kMaxRankMemory / kEntryCost / 4; group += 2) {
    for (const std::uint32_t rank : {0U, 1U}) ASSERT_EQ(hub.says(rank, wire::Assemble{GroupId(group), ranks(2)}), "");
    for (const std::uint32_t rank : {0U, 1U}) ASSERT_EQ(hub.says(rank, HubFixture::contribute(GroupId(group))), "");
    for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, wire::ResultAck{GroupId(group), 1, {}});
    for (const std::uint32_t rank : {0U, 1U}) ASSERT_EQ(hub.says(rank, wire::Disband{GroupId(group)}), "");
  }
}

// ---- what a rank keeps -----------------------------------------------------------------------------

class HubClientBounds : public ::testing::Test {
 protected:
  static constexpr GroupId kOpen{2};
  static constexpr wire::Ballot kBallot{1, 50};
  HubClient client{{HubFixture::enter(0, 2),
                    {"x", "y"},
                    std::chrono::seconds(1),
                    std::chrono::seconds(60),
                    std::chrono::seconds(300)}};

  void SetUp() override {
    (void)client.step({}, HubBegin{});
    (void)client.step({}, HubConnected{LinkId(1)});
    (void)told(wire::Entered{1000, 60'000, kBallot, {}});
    (void)client.step({}, OpenGroup{kOpen, ranks(2), {}, 0});
  }
  std::vector<HubClientAction> told(wire::Message message) {
    return client.step({}, HubReceived{LinkId(1), std::move(message), nullptr});
  }
  std::vector<HubClientAction> fails(GroupId group, std::uint64_t step) {
    return told(wire::StepResult{group, step, kBallot, true, {}, "no"});
  }
  [[nodiscard]] static bool has_disbanded(const std::vector<HubClientAction>& actions) {
    return std::ranges::any_of(actions, [](const HubClientAction& action) {
      const auto* send = std::get_if<HubSend>(&action);
      return send != nullptr && std::holds_alternative<wire::Disband>(send->message);
    });
  }
  // The group that is open goes on.
  void expect_a_result() {
    HubRequest request;
    request.id = 1;
    request.group = kOpen;
    request.operation = "sum";
    (void)client.step({}, request);
    const std::vector<HubClientAction> actions = told(wire::StepResult{kOpen, 1, kBallot, true, {}, ""});
    const auto done = std::ranges::find_if(
        actions, [](const HubClientAction& action) { return std::holds_alternative<HubExchanged>(action); });
    ASSERT_NE(done, actions.end());
    EXPECT_TRUE(std::get<HubExchanged>(*done).status.ok());
  }
};

TEST_F(HubClientBounds, ErrorsOfGroupsThatAreNotOpenHereEndNoOther) {
  int closed = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) closed += has_disbanded(fails(GroupId(100 + 2 * i), 1)) ? 1 : 0;
  EXPECT_EQ(closed, 5000 - 4096);
  expect_a_result();
}

TEST_F(HubClientBounds, HoldsABoundedNumberOfResultsOfAnUnopenedGroup) {
  for (std::uint64_t step = 1; step <= kMaxHeldOfGroup; ++step) EXPECT_FALSE(has_disbanded(fails(GroupId(100), step)));
  EXPECT_TRUE(has_disbanded(fails(GroupId(100), kMaxHeldOfGroup + 1)));
  EXPECT_TRUE(fails(GroupId(100), kMaxHeldOfGroup + 2).empty());
}

TEST_F(HubClientBounds, AHubThatAdmitsAndClosesIsDialledLessAndLessOften) {
  TimePoint now{};
  Duration pause{0};
  for (std::uint64_t link = 1; link <= 10; ++link) {
    (void)client.step(now, Closed{LinkId(link), {}});
    EXPECT_GE(client.next_deadline() - now, pause);
    pause = client.next_deadline() - now;
    now += pause;
    (void)client.step(now, Tick{});
    (void)client.step(now, HubConnected{LinkId(link + 1)});
    (void)client.step(now, HubReceived{LinkId(link + 1), wire::Entered{1000, 60'000, kBallot, {}}, nullptr});
  }
  EXPECT_EQ(pause, std::chrono::seconds(5));
  now += std::chrono::seconds(60);
  (void)client.step(now, Closed{LinkId(11), {}});
  EXPECT_EQ(client.next_deadline() - now, std::chrono::milliseconds(200)) << "it was in for a grace";
}

TEST_F(HubClientBounds, AnAwaitedResultEndsNoGroup) {
  for (std::uint64_t step = 2; step <= kMaxHeldOfGroup + 1; ++step) (void)fails(kOpen, step);
  expect_a_result();
}

TEST_F(HubClientBounds, ARankSaysNoMoreThanAMessageHolds) {
  for (std::uint64_t i = 0; i < wire::kMaxGroups + 5000; ++i) (void)fails(GroupId(100 + 2 * i), 1);
  const std::vector<HubClientAction> actions = told(wire::PrepareWorld{{2, 60}});
  ASSERT_EQ(actions.size(), 1U);
  const auto& enter = std::get<wire::Enter>(std::get<HubSend>(actions[0]).message);
  EXPECT_LE(enter.closed.size(), wire::kMaxGroups);
  EXPECT_LE(enter.held.size() + enter.completed.size(), 4096U);
}

// ---- worlds ----------------------------------------------------------------------------------------

// A hub whose worlds are begun from several hosts.
class HubWorldsOfHosts : public ::testing::Test {
 protected:
  [[nodiscard]] std::string begin(const std::string& host, std::uint64_t world) {
    hub.from(host);
    return hub.says(HubFixture::link_of(0, world), HubFixture::enter(0, 4, world));
  }
  void fill() {
    for (std::uint64_t world = 1; world <= kMaxWorlds; ++world) {
      EXPECT_EQ(begin("host " + std::to_string(world % (kMaxWorlds / kMaxWorldsOfHost)), world), "") << world;
    }
  }
  HubFixture hub;
};

TEST_F(HubWorldsOfHosts, WorldsAreFewAndRememberedWhileTheirRanksMayComeBack) {
  fill();
  EXPECT_THAT(begin("another", 1000), HasSubstr("this coordinator has 64 worlds"));
  hub.close(HubFixture::link_of(0, 3));
  EXPECT_THAT(begin("another", 1001), HasSubstr("[hub.too-many-worlds]"));
  (void)hub.says(HubFixture::link_of(0, 4), wire::Leave{});
  EXPECT_EQ(begin("another", 1002), "") << "all of world 4 have left";
}

TEST_F(HubWorldsOfHosts, OneHostBeginsABoundedNumberAndTakesNoRoomFromOthers) {
  for (std::uint64_t world = 1; world <= kMaxWorldsOfHost; ++world) EXPECT_EQ(begin("greedy", world), "");
  EXPECT_THAT(begin("greedy", 100),
              AllOf(HasSubstr("16 worlds that ranks of the same host have begun"), HasSubstr("[hub.too-many-worlds]")));
  EXPECT_EQ(begin("other", 101), "");
  EXPECT_EQ(hub.says(LinkId(7), HubFixture::enter(1, 4, 101)), "") << "a world that is there takes ranks of any host";
  hub.from("greedy");
  EXPECT_EQ(hub.says(LinkId(8), HubFixture::enter(2, 4, 101)), "");
}

// As a host that restarts its ranks after each crash.
TEST_F(HubWorldsOfHosts, DeadWorldsOfAHostMakeRoomForItsNextLongestSilentFirst) {
  constexpr std::uint64_t kLinked = 2;
  constexpr std::uint64_t kOfAnother = 100;
  EXPECT_EQ(begin("other", kOfAnother), "");
  for (std::uint64_t world = 1; world <= kMaxWorldsOfHost; ++world) {
    hub.pass(std::chrono::seconds(1));
    EXPECT_EQ(begin("crashing", world), "");
    if (world != kLinked) hub.close(HubFixture::link_of(0, world));
  }
  hub.close(HubFixture::link_of(0, kOfAnother));
  EXPECT_THAT(begin("crashing", 17), HasSubstr("[hub.too-many-worlds]")) << "they may come back within the grace";
  hub.pass(std::chrono::seconds(30));
  (void)hub.says(HubFixture::link_of(0, kLinked), wire::Heartbeat{});
  hub.pass(std::chrono::seconds(30));
  for (std::uint64_t world = 17; world <= 18; ++world) EXPECT_EQ(begin("crashing", world), "");
  const auto is_known = [&](std::uint64_t world) {  // another process has been this rank, or it is gone
    wire::Enter again = HubFixture::enter(0, 4, world);
    again.acceptor = AcceptorId(1000);
    return !hub.says(LinkId(world), again).empty();
  };
  EXPECT_TRUE(is_known(kOfAnother)) << "silent for as long, and of another host";
  EXPECT_TRUE(is_known(kLinked));
  for (std::uint64_t world = 4; world <= 18; ++world) EXPECT_TRUE(is_known(world)) << world;
  EXPECT_FALSE(is_known(3));
  EXPECT_FALSE(is_known(1));
}

TEST_F(HubWorldsOfHosts, ThereAreNoMoreOfThemHoweverManyAreLeft) {
  for (std::uint64_t world = 1; world <= 10 * kMaxWorlds; ++world) {
    hub.pass(std::chrono::seconds(4));
    EXPECT_EQ(begin("crashing", world), "") << world;
    (void)hub.says(HubFixture::link_of(0, world), wire::Assemble{GroupId(2), ranks(4)});
    (void)hub.says(HubFixture::link_of(0, world), HubFixture::contribute(GroupId(2)), kMiB);
    hub.close(HubFixture::link_of(0, world));
    EXPECT_LE(hub.hub().bytes_held(), kMaxWorldsOfHost * kMiB);
  }
}

TEST(HubBounds, LargeWorldsShareTheirRanks) {
  HubFixture hub;
  for (std::uint64_t world = 1; world <= 2; ++world) {
    EXPECT_EQ(hub.says(HubFixture::link_of(0, world), HubFixture::enter(0, wire::kMaxRanks, world)), "");
  }
  EXPECT_THAT(hub.says(LinkId(5), HubFixture::enter(0, kSmallWorld + 1, 3)),
              HasSubstr("this world has 4097 ranks, and this coordinator has 2 worlds of 131072 ranks"));
  EXPECT_EQ(hub.says(LinkId(6), HubFixture::enter(0, kSmallWorld, 4)), "");
}

TEST(HubBounds, ALinkIsOfOneRank) {
  HubFixture hub;
  (void)hub.says(0, HubFixture::enter(0, 3));
  EXPECT_THAT(hub.says(0, HubFixture::enter(1, 3)), HasSubstr("this link already belongs to rank 0"));
  (void)hub.says(0, HubFixture::enter(0, 3));
  EXPECT_THAT(hub.says(0, HubFixture::enter(0, 3, 2)), HasSubstr("this link already belongs to rank 0"));
}

}  // namespace
}  // namespace collab::protocol
