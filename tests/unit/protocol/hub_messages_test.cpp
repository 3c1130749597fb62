// What a rank says of others and of itself: what counts for nothing, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/wire/limits.h"
#include "tests/unit/protocol/hub_fixture.h"

namespace collab::protocol {
namespace {

using ::testing::HasSubstr;
using testing::HubFixture;
using ::testing::SizeIs;

[[nodiscard]] std::vector<RankId> all_but(std::uint32_t except, std::uint32_t count) {
  std::vector<RankId> ranks;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i != except) ranks.emplace_back(i);
  }
  return ranks;
}

TEST(HubMessages, AWorldOfTheGoneIsOneLine) {
  HubFixture hub;
  wire::Enter enter = HubFixture::enter(0, wire::kMaxRanks);
  enter.chosen = {1, all_but(0, wire::kMaxRanks)};
  EXPECT_EQ(hub.says(0, enter), "");
  ASSERT_THAT(hub.lines(), SizeIs(1));
  EXPECT_THAT(hub.lines()[0], HasSubstr("and 65519 more are gone from the world's collectives"));
  EXPECT_LT(hub.lines()[0].size(), 1000U);
}

TEST(HubMessages, TheOnlyHubBelievesNoRankAboutTheMembership) {
  HubFixture hub;
  for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, HubFixture::enter(rank, 3));
  wire::Enter liar = HubFixture::enter(2, 3);
  liar.chosen = {1, {RankId(0), RankId(1)}};
  EXPECT_EQ(hub.says(2, liar), "");
  EXPECT_EQ(hub.hub().present().size(), 3U);
  EXPECT_TRUE(hub.lines().empty());
}

// Else it would begin the world again, and end the others' steps another way.
TEST(HubMessages, AnExpelledRankIsRefusedEvenAfterTheOthersHaveLeft) {
  HubFixture hub;
  for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, HubFixture::enter(rank, 2));
  hub.pass(std::chrono::seconds(40));
  (void)hub.says(0, wire::Heartbeat{1, false});
  hub.pass(std::chrono::seconds(21));
  ASSERT_EQ(hub.hub().present().size(), 1U);
  (void)hub.says(0, wire::Leave{"the end"});
  wire::Enter late = HubFixture::enter(1, 2);
  late.returning = true;
  EXPECT_THAT(hub.says(LinkId(77), late), HasSubstr("[hub.left-out]"));
}

TEST(HubMessages, NoRanksClaimChangesAMembershipWhileTheHubLeads) {
  HubFixture hub;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    wire::Enter enter = HubFixture::enter(rank, 3, 1, 3);
    enter.candidates = 2;
    enter.promised = {1, 50};
    EXPECT_EQ(hub.says(rank, enter), "");
  }
  wire::Enter liar = HubFixture::enter(2, 3, 1, 3);
  liar.candidates = 2;
  liar.chosen = {1, {RankId(0), RankId(1)}};
  EXPECT_THAT(hub.says(2, liar), HasSubstr("[hub.split]"));
  EXPECT_EQ(hub.hub().present().size(), 2U);
}

TEST(HubMessages, MemoriesNoRankCanHaveAreRefused) {
  HubFixture hub;
  (void)hub.says(0, HubFixture::enter(0, 3));
  wire::Enter stranger = HubFixture::enter(1, 3);
  stranger.accepted_under = {1, 7};
  stranger.accepted = {1, {RankId(60'000)}};
  EXPECT_THAT(hub.says(1, stranger), HasSubstr("rank 60000 is said to be gone from a world of 3"));
  wire::Enter far = HubFixture::enter(1, 3);
  far.chosen = {UINT64_MAX, {RankId(2)}};
  EXPECT_THAT(hub.says(1, far), HasSubstr("membership 18446744073709551615 without 1 of its ranks"));
  wire::Enter high = HubFixture::enter(1, 3);
  high.promised = {UINT64_MAX, 1};
  EXPECT_THAT(hub.says(1, high), HasSubstr("is far above any of this world, which is at 1"));
  wire::Enter itself = HubFixture::enter(1, 3);
  itself.chosen = {1, {RankId(1)}};
  EXPECT_THAT(hub.says(1, itself), HasSubstr("was left out of its world's collectives, as it says itself"));
  EXPECT_EQ(hub.says(1, HubFixture::enter(1, 3)), "");
}

// What a step of a group came to, as rank 0 is told.
[[nodiscard]] std::string end_of_step(HubFixture& hub, GroupId group, std::uint64_t step) {
  for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, HubFixture::contribute(group, step));
  const std::string error = hub.error();
  for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, wire::ResultAck{group, step, {}});
  return error;
}

TEST(HubMessages, NoRankHasCompletedACallTheOthersCannotHaveBegun) {
  for (const bool first : {true, false}) {
    HubFixture hub;
    const auto lie = [&] {
      wire::Enter liar = HubFixture::enter(2, 3);
      for (const std::uint64_t group : {2U, 4U}) liar.completed.push_back({GroupId(group), std::uint64_t{1} << 60});
      EXPECT_EQ(hub.says(2, liar), "");
    };
    if (first) lie();
    for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, HubFixture::enter(rank, 3));
    for (const std::uint32_t rank : {0U, 1U}) {
      (void)hub.says(rank, wire::Assemble{GroupId(2), {RankId(0), RankId(1)}});
      (void)hub.says(rank, wire::Assemble{GroupId(4), {RankId(0), RankId(1), RankId(2)}});
    }
    if (!first) lie();
    EXPECT_EQ(end_of_step(hub, GroupId(2), 1), "") << "it is no member of it";
    (void)hub.says(2, wire::Assemble{GroupId(4), {RankId(0), RankId(1), RankId(2)}});
    (void)end_of_step(hub, GroupId(4), 1);
    EXPECT_EQ(hub.error(), "") << "it is waited for, as long as it does not come";
  }
}

TEST(HubMessages, ACallCompletedWithAnEarlierHubStands) {
  HubFixture hub;
  for (const std::uint32_t rank : {0U, 1U}) {
    wire::Enter enter = HubFixture::enter(rank, 2);
    enter.completed = {{GroupId(2), rank == 0 ? 1000U : 1000U - kMaxHeldOfGroup}};
    (void)hub.says(rank, enter);
    (void)hub.says(rank, wire::Assemble{GroupId(2), {RankId(0), RankId(1)}});
  }
  (void)hub.says(1, HubFixture::contribute(GroupId(2), 1001 - kMaxHeldOfGroup));
  EXPECT_THAT(hub.error(), HasSubstr("[hub.too-late]"));
}

// The others of the group are on their way back to a hub that has begun anew: nobody is behind.
TEST(HubMessages, AShortTimeOutHoldsAtAHubThatHasBegunAnew) {
  HubFixture hub;
  for (const std::uint32_t rank : {0U, 1U}) {
    wire::Enter enter = HubFixture::enter(rank, 2);
    enter.completed = {{GroupId(2), 999}};
    (void)hub.says(rank, enter);
  }
  (void)hub.says(0, wire::Assemble{GroupId(2), {RankId(0), RankId(1)}});
  wire::Contribute part = HubFixture::contribute(GroupId(2), 1000);
  part.timeout_ms = 3000;
  EXPECT_EQ(hub.says(0, part), "");
  hub.pass(std::chrono::seconds(4));
  EXPECT_NE(hub.error(), "");
}

TEST(HubMessages, TakingAGroupsNumberFirstEndsNoOtherGroup) {
  HubFixture hub;
  for (const std::uint32_t rank : {0U, 1U, 2U}) (void)hub.says(rank, HubFixture::enter(rank, 3));
  (void)hub.says(2, wire::Assemble{GroupId(2), {RankId(2)}});
  for (const std::uint32_t rank : {0U, 1U}) {
    for (const std::uint64_t group : {2U, 4U}) {
      EXPECT_EQ(hub.says(rank, wire::Assemble{GroupId(group), {RankId(0), RankId(1)}}), "");
    }
    EXPECT_EQ(hub.says(rank, HubFixture::contribute(GroupId(2))), "");
    EXPECT_THAT(hub.error(), HasSubstr("[hub.group-differs]"));
    (void)hub.says(rank, wire::ResultAck{GroupId(2), 1, {}});
    EXPECT_EQ(hub.says(rank, wire::Disband{GroupId(2)}), "");
  }
  EXPECT_EQ(end_of_step(hub, GroupId(4), 1), "");
}

TEST(HubMessages, AGroupsNumberIsFreeAgainOnceItsTakerIsGone) {
  HubFixture hub;
  for (const std::uint32_t rank : {0U, 1U, 2U}) (void)hub.says(rank, HubFixture::enter(rank, 3));
  (void)hub.says(2, wire::Assemble{GroupId(2), {RankId(2)}});
  hub.close(HubFixture::link_of(2));
  for (int second = 0; second < 65; ++second) {
    hub.pass(std::chrono::seconds(1));
    for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, wire::Heartbeat{});
  }
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(hub.says(rank, wire::Assemble{GroupId(2), {RankId(0), RankId(1)}}), "");
  }
  EXPECT_EQ(end_of_step(hub, GroupId(2), 1), "");
}

TEST(HubMessages, AStrangersTwinEndsNothing) {
  const std::vector<RankId> both{RankId(0), RankId(1)};
  for (const std::vector<RankId>& made : {std::vector{RankId(2), RankId(1)}, {RankId(0), RankId(1), RankId(2)}}) {
    HubFixture hub;
    for (const std::uint32_t rank : {0U, 1U, 2U}) (void)hub.says(rank, HubFixture::enter(rank, 3));
    for (const std::uint32_t rank : {0U, 1U}) (void)hub.says(rank, wire::Assemble{GroupId(2), both});
    (void)hub.says(2, wire::Assemble{GroupId(3), made});
    wire::Contribute call = HubFixture::contribute(GroupId(2));
    call.call = 7;
    (void)hub.says(0, call);
    wire::Contribute strange = HubFixture::contribute(GroupId(3));
    strange.call = 7;
    (void)hub.says(2, strange);
    EXPECT_EQ(hub.error(), "");
    (void)hub.says(1, call);
    EXPECT_EQ(hub.error(), "");
    EXPECT_GT(hub.sent(), 0U);
  }
}

TEST(HubMessages, AWorldThatIsRefusedIsNotKept) {
  HubFixture hub;
  for (std::uint64_t world = 1; world <= 2 * kMaxWorlds; ++world) {
    wire::Enter stranger = HubFixture::enter(0, 3, world);
    stranger.chosen = {9, {RankId(2)}};
    EXPECT_THAT(hub.says(LinkId(1), stranger), HasSubstr("membership 9"));
  }
  EXPECT_EQ(hub.hub().next_deadline(), kNever);
}

}  // namespace
}  // namespace collab::protocol
