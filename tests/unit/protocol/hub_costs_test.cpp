// The cost of an event at a hub does not grow with what others have opened there. It is counted, not timed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/protocol/hub_fixture.h"

namespace collab::protocol {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HubFixture;

// Four ranks: the first two are in group 2, and rank 3 has opened many of its own.
class HubCosts : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMany = 5000;
  HubFixture hub;

  void SetUp() override {
    for (std::uint32_t rank = 0; rank < 4; ++rank) (void)hub.says(rank, HubFixture::enter(rank, 4));
    open(0, 2, {RankId(0), RankId(1)});
    open(1, 2, {RankId(0), RankId(1)});
    for (std::uint64_t i = 0; i < kMany; ++i) open(3, 1000 + 2 * i, {RankId(3), RankId(2)});
  }
  void open(std::uint32_t rank, std::uint64_t group, const std::vector<RankId>& members, GroupId parent = {}) {
    ASSERT_EQ(hub.says(rank, wire::Assemble{GroupId(group), members, parent, 0}), "");
  }
  // What was looked at meanwhile.
  template <typename Event>
  std::uint64_t cost_of(Event event) {
    const std::uint64_t before = hub.hub().looked_at();
    event();
    return hub.hub().looked_at() - before;
  }
  [[nodiscard]] static wire::Contribute within(std::uint64_t group, std::uint32_t timeout_ms) {
    wire::Contribute message = HubFixture::contribute(GroupId(group));
    message.timeout_ms = timeout_ms;
    return message;
  }
};

TEST_F(HubCosts, APartLooksAtItsOwnStep) {
  EXPECT_LT(cost_of([&] { (void)hub.says(0, within(2, 0)); }), 10U);
  EXPECT_LT(cost_of([&] { (void)hub.says(1, within(2, 0)); }), 10U);
}

TEST_F(HubCosts, ATimeOutLooksAtItsOwnStep) {
  (void)hub.says(0, within(2, 1));
  for (std::uint64_t i = 0; i < 1000; ++i) (void)hub.says(3, within(1000 + 2 * i, 60'000));
  EXPECT_LT(cost_of([&] { hub.pass(milliseconds(1)); }), 10U);
  EXPECT_THAT(hub.error(), ::testing::HasSubstr("rank 1 of site1 did not reach it in time"));
  const TimePoint next = hub.hub().next_deadline();
  EXPECT_LT(next, kNever);
  EXPECT_GT(next, TimePoint(std::chrono::hours(1)) + seconds(59));
}

TEST_F(HubCosts, ADecidedCallIsNotWaitedFor) {
  (void)hub.says(0, within(2, 1000));
  EXPECT_EQ(hub.hub().next_deadline(), TimePoint(std::chrono::hours(1)) + seconds(1));
  (void)hub.says(1, within(2, 500));
  EXPECT_EQ(hub.hub().next_deadline(), TimePoint(std::chrono::hours(1)) + seconds(60)) << "the silence of a rank";
}

TEST_F(HubCosts, EnteringLooksAtOnesOwnGroups) {
  EXPECT_LT(cost_of([&] { (void)hub.says(0, HubFixture::enter(0, 4)); }), 20U);
}

TEST_F(HubCosts, LeavingLooksAtOnesOwnGroups) {
  EXPECT_LT(cost_of([&] { (void)hub.says(1, wire::Leave{"done"}); }), 20U);
}

TEST_F(HubCosts, EnteringAgainAndAgainByOneLinkEndsIt) {
  int times = 0;
  for (; times < 100 && hub.hub().knows(HubFixture::link_of(3)); ++times) (void)hub.says(3, HubFixture::enter(3, 4));
  EXPECT_EQ(times, 21);
  EXPECT_EQ(hub.says(3, HubFixture::enter(3, 4)), "") << "by a new link";
  EXPECT_TRUE(hub.hub().knows(HubFixture::link_of(3)));
}

TEST_F(HubCosts, FindingASenderLooksAtThoseThatWaitForTheReceiver) {
  open(0, 4, {RankId(0), RankId(1)}, GroupId(2));
  (void)hub.says(0, within(4, 0));
  EXPECT_LT(cost_of([&] {
              for (int times = 0; times < 10; ++times) (void)hub.says(1, wire::ResolveSender{GroupId(2), 0});
            }),
            20U);
  EXPECT_EQ(hub.sent(), 1U) << "it is told each time";
}

// One that is no member of the group may have made a pair of the same number and tag.
TEST_F(HubCosts, AStrangerToTheGroupIsNobodysSender) {
  open(2, 4, {RankId(2), RankId(1)}, GroupId(2));
  (void)hub.says(2, within(4, 0));
  open(0, 6, {RankId(0), RankId(1)}, GroupId(2));
  (void)hub.says(0, within(6, 0));
  (void)hub.says(1, wire::ResolveSender{GroupId(2), 0});
  EXPECT_EQ(hub.sent(), 1U);
}

// A caller that reports changes compares the counts instead of looking again.
TEST_F(HubCosts, MessagesThatChangeNothingLeaveTheCountsAlone) {
  const std::uint64_t changes = hub.hub().changes();
  const std::uint64_t calls = hub.hub().changes_of_calls();
  (void)hub.says(0, wire::Heartbeat{1, false});
  (void)hub.says(0, wire::ResolveSender{GroupId(2), 0});
  hub.pass(seconds(1));
  EXPECT_EQ(hub.hub().changes_of_calls(), calls);
  (void)hub.says(0, within(2, 0));
  EXPECT_NE(hub.hub().changes_of_calls(), calls);
  EXPECT_EQ(hub.hub().changes(), changes);
  (void)hub.says(0, HubFixture::enter(0, 4));
  EXPECT_EQ(hub.hub().changes(), changes) << "it was there before";
  (void)hub.says(1, wire::Leave{"done"});
  EXPECT_NE(hub.hub().changes(), changes);
}

// Of a group whose members come one after the other, each member is looked at a few times.
TEST(HubCostsOfAGroup, AStepOfManyMembersLooksAtEachAFewTimes) {
  constexpr std::uint32_t kMembers = 512;
  HubFixture hub;
  hub.gather(kMembers, {GroupId(2)});
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const std::uint64_t before = hub.hub().looked_at();
    for (std::uint32_t rank = 0; rank < kMembers; ++rank) {
      ASSERT_EQ(hub.says(rank, HubFixture::contribute(GroupId(2), step)), "");
    }
    for (std::uint32_t rank = 0; rank < kMembers; ++rank) (void)hub.says(rank, wire::ResultAck{GroupId(2), step, {}});
    EXPECT_LT(hub.hub().looked_at() - before, 20 * kMembers);
    EXPECT_EQ(hub.hub().steps_known(), 0U);
  }
  const std::uint64_t before = hub.hub().looked_at();
  for (std::uint32_t rank = 0; rank < kMembers; ++rank) (void)hub.says(rank, wire::Disband{GroupId(2)});
  EXPECT_LT(hub.hub().looked_at() - before, 10 * kMembers);
}

}  // namespace
}  // namespace collab::protocol
