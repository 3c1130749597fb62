// A full hub: which ranks go on, and which give way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/protocol/hub_fixture.h"

namespace collab::protocol {
namespace {

using testing::groups;
using ::testing::HasSubstr;
using testing::HubFixture;
using testing::kMiB;
using testing::ranks;

// Five ranks of that world bring as much as a hub holds, to groups to which the others do not come; their links.
std::vector<LinkId> fill(HubFixture& hub, std::uint64_t world) {
  std::vector<LinkId> links;
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    const LinkId link = links.emplace_back(HubFixture::link_of(rank, world));
    (void)hub.says(link, HubFixture::enter(rank, 5, world));
    for (std::uint64_t group = 100 * (rank + 1); group < 100 * (rank + 1) + 14; group += 2) {
      EXPECT_EQ(hub.says(link, wire::Assemble{GroupId(group), ranks(5)}), "");
      EXPECT_EQ(hub.says(link, HubFixture::contribute(GroupId(group)), 29 * kMiB / 2), "");
    }
  }
  return links;
}
constexpr std::size_t kOfStrangers = 35 * (29 * kMiB / 2 + kPartCost);  // what fill() takes

// Rank 2 brings its parts and never says that it has the others'.
TEST(HubRoom, ARankThatTakesNothingForAGraceIsExpelledAtNoCostToSenders) {
  HubFixture hub;
  hub.gather(3, groups(15));
  const auto wait = [&] {
    for (int i = 0; i < 4; ++i) {
      hub.pass(std::chrono::seconds(15));
      for (std::uint32_t rank = 0; rank < 3; ++rank) (void)hub.says(rank, wire::Heartbeat{1, false});
    }
  };
  for (std::uint64_t i = 0; i < 15; ++i) {
    if (i == 7 || i == 14) wait();
    const GroupId group(2 + 2 * i);
    ASSERT_EQ(hub.says(0, HubFixture::contribute(group), 16 * kMiB), "") << i;
    for (const std::uint32_t rank : {1U, 2U}) (void)hub.says(rank, HubFixture::contribute(group));
    for (const std::uint32_t rank : {0U, 1U}) EXPECT_EQ(hub.says(rank, wire::ResultAck{group, 1, {}}), "");
    EXPECT_EQ(hub.hub().present().size(), i < 14 ? 3U : 2U);
  }
  EXPECT_THAT(hub.lines().back(),
              HasSubstr("rank 2 of site0 is gone from the world's collectives: it has not taken what is held for it"));
  EXPECT_EQ(hub.hub().bytes_held(), 0U);
}

TEST(HubRoom, ARankThatPausesBrieflyCostsNobodyAnything) {
  HubFixture hub;
  hub.gather(3, groups(15));
  for (std::uint64_t i = 0; i < 15; ++i) {
    const GroupId group(2 + 2 * i);
    ASSERT_EQ(hub.says(0, HubFixture::contribute(group), 16 * kMiB), "") << i;
    for (const std::uint32_t rank : {1U, 2U}) (void)hub.says(rank, HubFixture::contribute(group));
    for (const std::uint32_t rank : {0U, 1U}) EXPECT_EQ(hub.says(rank, wire::ResultAck{group, 1, {}}), "");
  }
  EXPECT_EQ(hub.error(), "");
  EXPECT_EQ(hub.hub().present().size(), 3U);
  for (std::uint64_t i = 0; i < 15; ++i) EXPECT_EQ(hub.says(2, wire::ResultAck{GroupId(2 + 2 * i), 1, {}}), "");
  EXPECT_EQ(hub.hub().bytes_held(), 0U);
}

TEST(HubRoom, ARankThatTakesNothingFailsOnlyCallsWithIt) {
  HubFixture hub;
  constexpr std::uint32_t kRanks = 35;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) (void)hub.says(rank, HubFixture::enter(rank, kRanks));
  std::size_t failed = 0;
  for (std::uint64_t i = 0; i < 60 && failed == 0; ++i) {
    const GroupId group(2 + 2 * i);
    for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) (void)hub.says(rank, wire::Assemble{group, ranks(4)});
    for (const std::uint32_t rank : {0U, 1U, 2U}) {
      ASSERT_EQ(hub.says(rank, HubFixture::contribute(group), 4 * kMiB), "");
      if (!hub.error().empty()) {
        EXPECT_THAT(hub.error(), HasSubstr("[hub.parts-untaken]"));
        ++failed;
      }
    }
    (void)hub.says(3, HubFixture::contribute(group));
    for (const std::uint32_t rank : {0U, 1U, 2U}) (void)hub.says(rank, wire::ResultAck{group, 1, {}});
  }
  EXPECT_GT(failed, 0U);
  EXPECT_LE(hub.hub().bytes_held(), 400 * kMiB);
  EXPECT_EQ(hub.says(0, wire::Assemble{GroupId(500), ranks(3)}), "");
  EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(500)), 4 * kMiB), "");
  EXPECT_EQ(hub.error(), "");
  hub.close(HubFixture::link_of(3));
  for (int second = 0; second < 65; ++second) {
    hub.pass(std::chrono::seconds(1));
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      if (rank != 3) (void)hub.says(rank, wire::Heartbeat{});
    }
  }
  EXPECT_EQ(hub.hub().present().size(), kRanks - 1);
  EXPECT_LE(hub.hub().bytes_held(), 16 * kMiB) << "of that step, and the one that failed";
}

// What the hub remembers of calls that fail is kept until all have heard of them, and counts as the callers'.
TEST(HubRoom, ARankThatFailsItsCallsForAGraceIsExpelled) {
  HubFixture hub;
  constexpr std::uint32_t kRanks = 35;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) (void)hub.says(rank, HubFixture::enter(rank, kRanks));
  std::uint64_t next = 0;
  const auto call = [&](std::uint32_t of) {
    const GroupId group(2 + 2 * ++next);
    for (std::uint32_t rank = 0; rank < of; ++rank) (void)hub.says(rank, wire::Assemble{group, ranks(of)});
    EXPECT_EQ(hub.says(0, HubFixture::contribute(group), 4 * kMiB), "");
    const std::string error = hub.error();
    for (std::uint32_t rank = 1; rank < of; ++rank) (void)hub.says(rank, HubFixture::contribute(group), 4 * kMiB);
    for (std::uint32_t rank = 0; rank < std::min(of, 3U); ++rank) (void)hub.says(rank, wire::ResultAck{group, 1, {}});
    return error;
  };
  while (next < 60 && call(4).empty()) continue;
  ASSERT_THAT(call(4), HasSubstr("[hub.parts-untaken]"));
  for (int second = 0; second < 65; ++second) {
    hub.pass(std::chrono::seconds(1));
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) (void)hub.says(rank, wire::Heartbeat{});
    (void)call(4);
  }
  EXPECT_EQ(hub.hub().present().size(), kRanks - 1);
  EXPECT_EQ(call(3), "");
}

TEST(HubRoom, ContributionsOfDeadRanksMakeRoom) {
  HubFixture hub;
  for (const LinkId link : fill(hub, 1)) hub.close(link);
  hub.pass(std::chrono::seconds(61));
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(hub.says(HubFixture::link_of(rank, 12), HubFixture::enter(rank, 8, 12)), "");
  }
  const LinkId first = HubFixture::link_of(0, 12);
  for (const std::uint64_t group : {2, 4, 6}) {  // more than its share
    EXPECT_EQ(hub.says(first, wire::Assemble{GroupId(group), ranks(8)}), "");
    EXPECT_EQ(hub.says(first, HubFixture::contribute(GroupId(group)), 16 * kMiB), "");
    EXPECT_EQ(hub.error(), "");
  }
  EXPECT_EQ(hub.hub().bytes_held(), 48 * kMiB);
}

TEST(HubRoom, ACrowdedOutRankFailsOneStepAndContinues) {
  HubFixture hub;
  (void)fill(hub, 1);
  for (std::uint64_t world = 2; world < 12; ++world) {
    (void)hub.says(HubFixture::link_of(0, world), HubFixture::enter(0, 1, world));
  }
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(hub.says(HubFixture::link_of(rank, 12), HubFixture::enter(rank, 8, 12)), "");
    EXPECT_EQ(hub.says(HubFixture::link_of(rank, 12), wire::Assemble{GroupId(2), ranks(8)}), "");
  }
  EXPECT_EQ(hub.says(HubFixture::link_of(0, 12), HubFixture::contribute(GroupId(2)), 8 * kMiB), "");
  EXPECT_EQ(hub.sent(), 0U) << "it waits for the others, or it would run ahead of them";
  for (std::uint32_t rank = 1; rank < 8; ++rank) {
    EXPECT_EQ(hub.says(HubFixture::link_of(rank, 12), HubFixture::contribute(GroupId(2))), "");
  }
  EXPECT_THAT(hub.error(), HasSubstr("this coordinator holds 532439040 bytes of at most 512 MiB"));
  EXPECT_EQ(hub.sent(), 8U) << "it fails for all of them";
  (void)hub.says(HubFixture::link_of(0, 12), wire::ResultAck{GroupId(2), 1, {}});
  EXPECT_EQ(hub.says(HubFixture::link_of(0, 12), HubFixture::contribute(GroupId(2), 2), kMiB), "");
  EXPECT_TRUE(hub.hub().knows(HubFixture::link_of(0, 12)));
}

// Not even a part without bytes has room for this rank.
TEST(HubRoom, ACrowdedOutRankAboveItsShareContinues) {
  constexpr std::uint32_t kRanks = 35;
  HubFixture hub;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) (void)hub.says(rank, HubFixture::enter(rank, kRanks));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    for (const std::uint64_t group : {2, 4}) (void)hub.says(rank, wire::Assemble{GroupId(group), ranks(3)});
  }
  EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(4)), kMaxHubParts - kOfStrangers - 3 * kPartCost / 2), "");
  (void)fill(hub, 2);
  for (std::uint64_t world = 3; world < 17; ++world) {
    (void)hub.says(HubFixture::link_of(0, world), HubFixture::enter(0, 1, world));
  }
  EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(2)), 8), "");
  for (const std::uint32_t rank : {1U, 2U}) (void)hub.says(rank, HubFixture::contribute(GroupId(2)));
  EXPECT_THAT(hub.error(), HasSubstr("[hub.parts-held]"));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(hub.says(rank, wire::ResultAck{GroupId(2), 1, {}}), "");
    if (rank > 0) (void)hub.says(rank, HubFixture::contribute(GroupId(4)));
  }
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(hub.says(rank, wire::ResultAck{GroupId(4), 1, {}}), "");
  EXPECT_EQ(hub.says(0, HubFixture::contribute(GroupId(2), 2), 8), "");
  EXPECT_EQ(hub.error(), "") << "it has room again";
}

// They fill it, and begin worlds that make each share small.
// All but so much is held by worlds of strangers that have died, of which a part takes more than its own bytes.
void go_well_where_strangers_have_left(std::size_t bytes) {
  constexpr std::uint32_t kRanks = 35;
  HubFixture hub;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) (void)hub.says(rank, HubFixture::enter(rank, kRanks));
  for (std::uint32_t rank = 0; rank < 3; ++rank) (void)hub.says(rank, wire::Assemble{GroupId(2), ranks(3)});
  std::vector<LinkId> strangers = fill(hub, 2);
  for (std::uint64_t world = 3; world < 17; ++world) {
    (void)hub.says(strangers.emplace_back(HubFixture::link_of(0, world)), HubFixture::enter(0, 1, world));
  }
  wire::Contribute part = HubFixture::contribute(GroupId(2));
  EXPECT_EQ(hub.says(0, part, 8 * kMiB), "");
  for (const std::uint32_t rank : {1U, 2U}) (void)hub.says(rank, part);
  EXPECT_THAT(hub.error(), HasSubstr("[hub.parts-held]"));
  for (std::uint32_t rank = 0; rank < 3; ++rank) (void)hub.says(rank, wire::ResultAck{GroupId(2), 1, {}});
  for (const LinkId link : strangers) hub.close(link);
  for (int second = 0; second < 65; ++second) {
    hub.pass(std::chrono::seconds(1));
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) (void)hub.says(rank, wire::Heartbeat{});
  }
  ++part.step;
  EXPECT_EQ(hub.says(0, part, bytes), "");
  EXPECT_EQ(hub.error(), "");
  EXPECT_EQ(hub.hub().bytes_held(), bytes);
}

TEST(HubRoom, AHubFilledByStrangersRecoversOnceTheyHaveDied) { go_well_where_strangers_have_left(8 * kMiB); }

TEST(HubRoom, AHubFilledByStrangersRecoversWithJustEnoughRoomForTheParts) {
  go_well_where_strangers_have_left(kMaxHubParts - kOfStrangers - kPartCost / 2);
}

}  // namespace
}  // namespace collab::protocol
