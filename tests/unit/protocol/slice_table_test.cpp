#include "core/protocol/exchange/slice_table.h"

#include <gtest/gtest.h>

#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

std::vector<Share> equal(std::uint32_t sites) {
  std::vector<Share> shares;
  for (std::uint32_t i = 0; i < sites; ++i) shares.push_back({SiteId{i}, 1.0});
  return shares;
}

TEST(SliceTable, CoversTheVectorInBlocksWithoutGaps) {
  for (std::uint32_t sites = 1; sites <= 9; ++sites) {
    for (const std::uint64_t elements : {1ULL, 1023ULL, 1024ULL, 1025ULL, 10'000ULL, 1'234'567ULL, 124'000'000ULL}) {
      std::uint64_t end = 0;
      for (const wire::Slice& slice : make_slices({0, elements}, equal(sites))) {
        EXPECT_EQ(slice.range.begin, end);
        EXPECT_GT(slice.range.end, slice.range.begin);
        EXPECT_EQ(slice.range.begin % kBlockElements, 0U);
        end = slice.range.end;
      }
      EXPECT_EQ(end, elements) << sites;
    }
  }
}

TEST(SliceTable, EqualSharesDifferByOneBlock) {
  const auto slices = make_slices({0, 10 * kBlockElements}, equal(4));
  ASSERT_EQ(slices.size(), 4U);
  for (const auto& slice : slices) {
    EXPECT_GE(slice.range.size(), 2 * kBlockElements);
    EXPECT_LE(slice.range.size(), 3 * kBlockElements);
  }
}

TEST(SliceTable, LargeSlicesBeginWhereThePartsOfTheDigestDo) {
  for (const wire::Slice& slice : make_slices({0, 25'000'000}, equal(2))) {
    EXPECT_EQ(slice.range.begin % kCoarseElements, 0U);
    EXPECT_LE(slice.range.size(), 12'500'000 + kCoarseElements);
  }
  EXPECT_NE(make_slices({0, 1'000'000}, equal(3))[1].range.begin % kCoarseElements, 0U) << "rounding would show";
}

TEST(SliceTable, SharesDecide) {
  const auto slices =
      make_slices({0, 8 * kBlockElements}, std::vector<Share>{{SiteId{0}, 0}, {SiteId{4}, 3}, {SiteId{9}, 1}});
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0], (wire::Slice{SiteId{4}, {0, 6 * kBlockElements}}));
  EXPECT_EQ(slices[1], (wire::Slice{SiteId{9}, {6 * kBlockElements, 8 * kBlockElements}}));
}

TEST(SliceTable, NoElementsOrNoOwners) {
  EXPECT_TRUE(make_slices({0, 0}, equal(2)).empty());
  EXPECT_TRUE(make_slices({0, 5000}, {}).empty());
  EXPECT_TRUE(make_slices({0, 5000}, std::vector<Share>{{SiteId{1}, 0}}).empty());
}

TEST(WaitProgress, TellsAtTenThirtySixtyThenEveryMinute) {
  WaitProgress progress;
  progress.start(TimePoint{});
  std::vector<Duration::rep> told;
  for (int second = 0; second <= 240; ++second) {
    if (progress.due(TimePoint(std::chrono::seconds(second)))) told.push_back(second);
  }
  EXPECT_EQ(told, (std::vector<Duration::rep>{10, 30, 60, 120, 180, 240}));
}

TEST(WaitProgress, TellsOnceAfterALongSleep) {
  WaitProgress progress;
  progress.start(TimePoint{});
  EXPECT_TRUE(progress.due(TimePoint(std::chrono::seconds(95))));
  EXPECT_FALSE(progress.due(TimePoint(std::chrono::seconds(96))));
  EXPECT_EQ(progress.next(), TimePoint(std::chrono::seconds(120)));
}

TEST(PassOn, OwnersThatStayKeepTheirsAndTheRestIsDivided) {
  const std::vector<Share> three{{SiteId{0}, 1}, {SiteId{1}, 1}, {SiteId{2}, 1}};
  const auto before = make_slices({0, 12 * kBlockElements + 7}, three);
  const std::vector<Share> two{{SiteId{0}, 1}, {SiteId{2}, 3}};
  const auto after = pass_on(before, two);
  ASSERT_EQ(after.size(), 4U);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], (wire::Slice{SiteId{0}, {4 * kBlockElements, 5 * kBlockElements}}));
  EXPECT_EQ(after[2], (wire::Slice{SiteId{2}, {5 * kBlockElements, 9 * kBlockElements}}));
  EXPECT_EQ(after[3], before[2]);
}

TEST(PassOn, WithoutALossNothingChanges) {
  const std::vector<Share> two{{SiteId{0}, 1}, {SiteId{1}, 1}};
  const auto before = make_slices({0, 100'000}, two);
  const std::vector<Share> three{{SiteId{0}, 1}, {SiteId{1}, 1}, {SiteId{5}, 1}};
  EXPECT_EQ(pass_on(before, three), before);
}

TEST(Lopsided, IsATableInWhichAnOwnerHasFarMoreThanItsShare) {
  const std::vector<Share> two{{SiteId{0}, 1}, {SiteId{1}, 1}};
  EXPECT_FALSE(lopsided({}, two));
  EXPECT_FALSE(lopsided({{SiteId{0}, {0, 60}}, {SiteId{1}, {60, 100}}}, two));
  EXPECT_TRUE(lopsided({{SiteId{0}, {0, 80}}, {SiteId{1}, {80, 100}}}, two));
  EXPECT_FALSE(
      lopsided({{SiteId{0}, {0, 80}}, {SiteId{1}, {80, 100}}}, std::vector<Share>{{SiteId{0}, 3}, {SiteId{1}, 1}}));
  EXPECT_TRUE(lopsided({{SiteId{1}, {0, 100}}}, two));
}

}  // namespace
}  // namespace collab::protocol
