// Shares of the vector as a machine of its own; what a coordinator makes of it is in coordinator_partition_test.cpp.
#include "core/protocol/allocation/bandwidth_partition.h"

#include <gmock/gmock.h>

namespace collab::protocol {
namespace {

using testing::DoubleNear;

constexpr RunId kRun{7};
const SiteId kParis{0}, kRome{1}, kOslo{2};

// Of two sites each sends the same whatever it owns: it takes three.
BandwidthPartition::Division divide(BandwidthPartition& partition, std::uint64_t round, double paris, double others) {
  std::vector<Line> lines;
  for (const SiteId site : {kParis, kRome, kOslo}) {
    const double rate = site == kParis ? paris : others;
    lines.push_back({.site = site, .up = rate, .down = rate});
  }
  return partition.divide(kRun, RoundId{round}, std::move(lines), 1);
}

TEST(BandwidthPartition, TheCodecsTellHowMuchLargerAMeanIsThanAContribution) {
  EXPECT_EQ(mean_ratio_of("fp16"), 1);
  EXPECT_THAT(mean_ratio_of("fp32/fp16"), DoubleNear(0.5, 0.01));
  EXPECT_THAT(mean_ratio_of("int4/int8"), DoubleNear(1.97, 0.02));
  EXPECT_GT(mean_ratio_of("topk64/int8"), 10);
  EXPECT_EQ(mean_ratio_of("int9/int8"), 1) << "the joiner is refused elsewhere";
  EXPECT_EQ(mean_ratio_of(""), 1);
}

TEST(BandwidthPartition, IsEqualUntilSomebodyHasMeasured) {
  BandwidthPartition partition;
  EXPECT_FALSE(divide(partition, 1, 0, 0).takes.has_value());
  EXPECT_THAT(partition.share_of(kParis), DoubleNear(1.0 / 3, 1e-12));
  EXPECT_EQ(partition.share_of(SiteId{9}), 0);
}

TEST(BandwidthPartition, TheFasterLineOwnsMore) {
  BandwidthPartition partition;
  const auto division = divide(partition, 1, 400, 100);
  ASSERT_TRUE(division.takes.has_value());
  EXPECT_LT(*division.takes, 1);
  EXPECT_GT(partition.share_of(kParis), partition.share_of(kRome));
  EXPECT_THAT(partition.share_of(kParis) + 2 * partition.share_of(kRome), DoubleNear(1, 1e-12));
  EXPECT_FALSE(divide(partition, 1, 100, 400).takes.has_value()) << "within a round nothing moves";
}

}  // namespace
}  // namespace collab::protocol
