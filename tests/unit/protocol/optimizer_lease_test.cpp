// Serving a copy of the optimizer's state: one copy for all sites that ask, and none for longer than a site needs it.
#include "core/protocol/site/optimizer_lease.h"

#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;

constexpr LinkId kLate{5};
constexpr LinkId kLater{6};

class Lease : public testing::Test {
 protected:
  std::vector<LeaseAction> step(const LeaseEvent& event) { return lease.step(now, event); }
  std::vector<LeaseAction> ask(LinkId from, std::uint64_t snapshot = 0, ElementRange range = {}) {
    return step(LeaseAsked{from, {snapshot, range}});
  }
  // late has asked, and the copy was made.
  std::uint64_t serve() {
    EXPECT_EQ(all<MakeCopy>(ask(kLate)).size(), 1U);
    return all<SendOptimizerState>(step(LeaseMade{1000, {1, 2}, "{}", {}})).at(0).message.snapshot;
  }

  TimePoint now{};
  OptimizerLease lease{seconds(60)};
};

TEST_F(Lease, NothingIsSpentUntilASiteAsks) {
  EXPECT_EQ(lease.next_deadline(), kNever);
  EXPECT_FALSE(lease.holds_copy());
}

TEST_F(Lease, OneCopyServesAllThatAsk) {
  EXPECT_EQ(all<MakeCopy>(ask(kLate)).size(), 1U);
  EXPECT_TRUE(ask(kLater).empty()) << "it is being made";
  const auto told = all<SendOptimizerState>(step(LeaseMade{1000, {1, 2}, "{\"a\":1}", {}}));
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[1].to, kLater);
  EXPECT_EQ(told[1].message, (wire::OptimizerState{1, 1000, {1, 2}, "{\"a\":1}", {}}));
  EXPECT_EQ(all<SendOptimizerState>(ask(LinkId{7})).at(0).message.snapshot, 1U) << "it is there";
}

TEST_F(Lease, OnlyExistingPartsAreSentToSitesToldOfThem) {
  const std::uint64_t snapshot = serve();
  EXPECT_EQ(all<SendPart>(ask(kLate, snapshot, {0, 1000})).at(0).part.range, (ElementRange{0, 1000}));
  EXPECT_THAT(all<SendOptimizerState>(ask(kLater, snapshot, {0, 10})).at(0).message.reason,
              HasSubstr("no longer held"));
  EXPECT_THAT(all<SendOptimizerState>(ask(kLate, snapshot + 1, {0, 10})).at(0).message.reason,
              HasSubstr("no longer held"));
  const auto wrong = ask(kLate, snapshot, {0, 1001});
  EXPECT_EQ(all<RefuseFetcher>(wrong).at(0).link, kLate);
  EXPECT_EQ(all<DropCopy>(wrong).size(), 1U);
}

TEST_F(Lease, AskingForMorePartsThanMayBeInFlightEndsTheLink) {
  const std::uint64_t snapshot = serve();
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(all<RefuseFetcher>(ask(kLate, snapshot, {0, 1})).empty());
  static_cast<void>(step(LeasePartSent{kLate}));
  EXPECT_TRUE(all<RefuseFetcher>(ask(kLate, snapshot, {0, 1})).empty());
  EXPECT_EQ(all<RefuseFetcher>(ask(kLate, snapshot, {0, 1})).size(), 1U);
}

TEST_F(Lease, PartsReturnedAndAskedForAgainCountAsInFlight) {
  const std::uint64_t snapshot = serve();
  ask(kLater);  // keeps the copy held
  for (int i = 0; i < 64; ++i) ask(kLate, snapshot, {0, 1});
  ask(kLate, snapshot);
  ask(kLate);
  EXPECT_EQ(all<RefuseFetcher>(ask(kLate, snapshot, {0, 1})).at(0).link, kLate);
  step(LeaseOver{kLate});
  ask(kLate);
  EXPECT_EQ(all<SendPart>(ask(kLate, snapshot, {0, 1})).size(), 1U) << "what was on its way went with its link";
}

// A part keeps all of its copy in memory.
TEST_F(Lease, NoOtherCopyIsMadeWhilePartsOfTheLastAreOnTheirWay) {
  const std::uint64_t snapshot = serve();
  ask(kLate, snapshot, {0, 1});
  EXPECT_EQ(all<DropCopy>(ask(kLate, snapshot)).size(), 1U) << "it gives the copy back";
  now += seconds(10);
  EXPECT_TRUE(ask(kLate).empty());
  EXPECT_TRUE(step(LeaseTick{}).empty());
  EXPECT_EQ(all<MakeCopy>(step(LeasePartSent{kLate})).size(), 1U);
}

TEST_F(Lease, ASiteThatTakesNothingLosesItsLinkOnceAnotherWaits) {
  const std::uint64_t snapshot = serve();
  ask(kLate, snapshot, {0, 1});
  ask(kLate, snapshot);
  now += seconds(29);
  EXPECT_TRUE(ask(kLater).empty());
  EXPECT_EQ(lease.next_deadline(), now + seconds(1)) << "half of the limit";
  now += seconds(1);
  EXPECT_EQ(all<RefuseFetcher>(step(LeaseTick{})).at(0).link, kLate);
  EXPECT_TRUE(step(LeaseTick{}).empty()) << "once";
  EXPECT_EQ(all<MakeCopy>(step(LeaseOver{kLate})).size(), 1U);
}

TEST_F(Lease, AskingAgainAndAgainEndsTheLink) {
  static_cast<void>(serve());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(all<SendOptimizerState>(ask(kLate)).size(), 1U);
  const auto fifth = ask(kLate);
  EXPECT_TRUE(all<SendOptimizerState>(fifth).empty());
  EXPECT_EQ(all<RefuseFetcher>(fifth).size(), 1U);
}

TEST_F(Lease, AskingAndLeavingCostsACopyEveryFewSeconds) {
  static_cast<void>(serve());
  static_cast<void>(step(LeaseOver{kLate}));
  EXPECT_TRUE(all<MakeCopy>(ask(kLater)).empty()) << "a copy was made a moment ago";
  EXPECT_EQ(lease.next_deadline(), now + seconds(5));
  static_cast<void>(step(LeaseOver{kLater}));
  EXPECT_TRUE(all<MakeCopy>(ask(kLate)).empty());
  now += seconds(5);
  EXPECT_EQ(all<MakeCopy>(step(LeaseTick{})).size(), 1U);
  EXPECT_TRUE(all<MakeCopy>(step(LeaseTick{})).empty());
}

TEST_F(Lease, TheCopyIsDroppedWithTheLastFetcher) {
  const std::uint64_t snapshot = serve();
  static_cast<void>(ask(kLater));
  EXPECT_TRUE(all<DropCopy>(ask(kLate, snapshot)).empty());
  EXPECT_EQ(all<DropCopy>(step(LeaseOver{kLater})).size(), 1U);
  EXPECT_FALSE(lease.holds_copy());
  EXPECT_EQ(lease.next_deadline(), kNever);
  now += seconds(5);
  EXPECT_EQ(serve(), snapshot + 1) << "the next one is another";
}

TEST_F(Lease, AFetcherThatKeepsSilentLosesTheCopy) {
  const std::uint64_t snapshot = serve();
  now += seconds(59);
  static_cast<void>(ask(kLate, snapshot, {0, 10}));
  now += seconds(59);
  EXPECT_TRUE(step(LeaseTick{}).empty());
  now += seconds(1);
  EXPECT_EQ(now, lease.next_deadline());
  const auto over = step(LeaseTick{});
  EXPECT_THAT(all<SendOptimizerState>(over).at(0).message.reason, HasSubstr("nothing was asked of it for 60 s"));
  EXPECT_EQ(all<DropCopy>(over).size(), 1U);
}

TEST_F(Lease, AStepThatDoesNotEndIsReportedAndItsCopyDropped) {
  static_cast<void>(ask(kLate));
  now += seconds(60);
  const auto over = step(LeaseTick{});
  EXPECT_THAT(all<SendOptimizerState>(over).at(0).message.reason, HasSubstr("end of a step within 60 s"));
  EXPECT_EQ(all<DropCopy>(over).size(), 1U);
  EXPECT_EQ(all<DropCopy>(step(LeaseMade{1000, {}, "{}", {}})).size(), 1U) << "it came too late";
  EXPECT_FALSE(lease.holds_copy());
}

TEST_F(Lease, ASiteWithoutStateSaysSo) {
  static_cast<void>(ask(kLate));
  const auto none = step(LeaseMade{0, {}, {}, "its optimizer keeps no state"});
  EXPECT_EQ(all<SendOptimizerState>(none).at(0).message,
            (wire::OptimizerState{0, 0, {}, {}, "its optimizer keeps no state"}));
  EXPECT_EQ(lease.next_deadline(), kNever);
  EXPECT_EQ(all<MakeCopy>(ask(kLate)).size(), 1U) << "it may have some later";
}

}  // namespace
}  // namespace collab::protocol
