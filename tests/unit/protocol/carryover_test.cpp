#include "core/protocol/site/carryover.h"

#include <gtest/gtest.h>

namespace collab::protocol {
namespace {

using Carried = Carryover<int>;
using Arrival = Carried::Arrival;

constexpr SiteId kUs{0};
constexpr SiteId kPeer{1};
constexpr ElementRange kOurs{0, 1024};
constexpr ElementRange kTheirs{1024, 2048};

wire::StartAttempt start_of(std::uint32_t attempt, std::uint32_t our_since, std::uint32_t their_since) {
  wire::StartAttempt start;
  start.round = RoundId{1};
  start.attempt = AttemptId{attempt};
  start.participants = {{kUs, "us", 1, AttemptId{our_since}}, {kPeer, "peer", 1, AttemptId{their_since}}};
  start.slices = {{kUs, {0, 1024}}, {kPeer, {1024, 2048}}};
  return start;
}

const std::vector<LinkId> kLinks{LinkId{0}, LinkId{7}};

// Attempt 1, in which one chunk came and one was sent.
Carried after_one_attempt() {
  Carried carried;
  carried.begin(start_of(1, 1, 1), kUs, kLinks);
  EXPECT_EQ(carried.arrived(kPeer, kOurs, AttemptId{1}, 42), Arrival::kTake);
  carried.sent(kPeer, kTheirs);
  return carried;
}

TEST(Carryover, IsEmptyInAnotherRun) {
  Carried carried = after_one_attempt();
  wire::StartAttempt other = start_of(2, 1, 1);
  other.run = RunId{8};
  carried.begin(other, kUs, kLinks);
  EXPECT_TRUE(carried.held().empty());
  EXPECT_TRUE(carried.delivered().empty());
}

TEST(Carryover, IsUsedInTheNextAttempt) {
  Carried carried = after_one_attempt();
  carried.begin(start_of(2, 1, 1), kUs, kLinks);
  ASSERT_EQ(carried.held().size(), 1U);
  EXPECT_EQ(carried.held()[0].from, kPeer);
  EXPECT_EQ(carried.held()[0].range, kOurs);
  EXPECT_EQ(*carried.find(kPeer, kOurs), 42);
  ASSERT_EQ(carried.delivered().size(), 1U);
  EXPECT_EQ(carried.delivered()[0].range, kTheirs);
}

TEST(Carryover, IsEmptyWhenEitherSideBeginsAnew) {
  for (const auto& [ours, theirs] : {std::pair{2, 1}, std::pair{1, 2}}) {
    Carried carried = after_one_attempt();
    carried.begin(start_of(2, static_cast<std::uint32_t>(ours), static_cast<std::uint32_t>(theirs)), kUs, kLinks);
    EXPECT_TRUE(carried.held().empty());
    EXPECT_TRUE(carried.delivered().empty());
    EXPECT_EQ(carried.find(kPeer, kOurs), nullptr);
    EXPECT_EQ(carried.arrived(kPeer, kOurs, AttemptId{1}, 42), Arrival::kStale);
  }
}

TEST(Carryover, IsEmptyInAnotherRound) {
  Carried carried = after_one_attempt();
  wire::StartAttempt start = start_of(2, 1, 1);
  start.round = RoundId{2};
  carried.begin(start, kUs, kLinks);
  EXPECT_TRUE(carried.held().empty());
  EXPECT_TRUE(carried.delivered().empty());
}

TEST(Carryover, OverAnotherLinkItIsSentAgainAndTakenOnce) {
  Carried carried = after_one_attempt();
  carried.begin(start_of(2, 1, 1), kUs, {LinkId{0}, LinkId{8}});
  EXPECT_TRUE(carried.delivered().empty());
  EXPECT_EQ(carried.arrived(kPeer, kOurs, AttemptId{2}, 43), Arrival::kHeld);
  EXPECT_EQ(*carried.find(kPeer, kOurs), 42);
}

TEST(Carryover, TwiceInOneAttemptIsARepeat) {
  Carried carried = after_one_attempt();
  EXPECT_EQ(carried.arrived(kPeer, kOurs, AttemptId{1}, 42), Arrival::kRepeat);
}

TEST(Carryover, TakesLateChunksOfAnEarlierAttempt) {
  Carried carried = after_one_attempt();
  carried.begin(start_of(3, 1, 1), kUs, kLinks);
  EXPECT_EQ(carried.arrived(kPeer, kTheirs, AttemptId{2}, 44), Arrival::kTake);
}

TEST(Carryover, TakesDamagedChunksAgain) {
  Carried carried = after_one_attempt();
  carried.drop(kPeer);
  carried.begin(start_of(2, 1, 1), kUs, {LinkId{0}, LinkId{8}});
  EXPECT_TRUE(carried.held().empty());
  EXPECT_EQ(carried.arrived(kPeer, kOurs, AttemptId{2}, 43), Arrival::kTake);
}

// It may come back into the round, and reckons with what it has sent.
TEST(Carryover, RemembersASiteLostForAnAttempt) {
  Carried carried = after_one_attempt();
  wire::StartAttempt alone = start_of(2, 1, 1);
  alone.participants.pop_back();
  alone.slices = {{kUs, {0, 1024}}, {kUs, {1024, 2048}}};
  carried.begin(alone, kUs, {LinkId{0}});
  carried.begin(start_of(3, 1, 1), kUs, kLinks);
  EXPECT_EQ(carried.held().size(), 1U);
  EXPECT_EQ(carried.delivered().size(), 1U) << "an owner keeps it, though the slice was not its own meanwhile";
}

// Attempts of which this site knows nothing may have had other owners; their number does not tell.
TEST(Carryover, TakesLateChunksOfASliceWithANewOwner) {
  Carried carried = after_one_attempt();
  wire::StartAttempt other = start_of(2, 1, 1);
  other.slices = {{kPeer, {0, 1024}}, {kUs, {1024, 2048}}};
  carried.begin(other, kUs, kLinks);
  EXPECT_EQ(carried.arrived(kPeer, {512, 1024}, AttemptId{1}, 43), Arrival::kTake);
  carried.took_late({512, 1024});
  EXPECT_EQ(carried.elements_late(), 512U);
  carried.begin(start_of(3, 1, 1), kUs, kLinks);
  EXPECT_EQ(carried.held().size(), 2U);
  carried.clear();
  EXPECT_EQ(carried.elements_late(), 0U);
}

}  // namespace
}  // namespace collab::protocol
