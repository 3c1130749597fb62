// When what a burst left on the heap is given back.
#include <gtest/gtest.h>

#include <chrono>

#include "transport/tcp/engine/trim_policy.h"

namespace collab::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kBurst = TrimDebt::kMuch + 1;
const TimePoint kStart = TimePoint() + seconds(100);

TEST(TrimPolicy, ABurstThatIsOverAtOnceIsFollowedByOneTrim) {
  TrimPolicy trims;
  EXPECT_FALSE(trims.is_due(kStart, kBurst, 0));
  EXPECT_TRUE(trims.owes());
  EXPECT_TRUE(trims.is_due(kStart + milliseconds(50), 0, 0));
  EXPECT_FALSE(trims.owes());
  EXPECT_FALSE(trims.is_due(kStart + seconds(60), 0, 0));
}

TEST(TrimPolicy, NothingIsTrimmedWhileMuchIsHeld) {
  TrimPolicy trims;
  EXPECT_FALSE(trims.is_due(kStart, kBurst, 0));
  EXPECT_FALSE(trims.is_due(kStart + seconds(60), TrimDebt::kLittle, 0));
  EXPECT_TRUE(trims.is_due(kStart + seconds(61), TrimDebt::kLittle - 1, 0));
}

TEST(TrimPolicy, BurstsInARowAreTrimmedNowAndThenAndTheLastOneToo) {
  TrimPolicy trims;
  int times = 0;
  for (int i = 0; i < 100; ++i) {
    const TimePoint now = kStart + i * milliseconds(200);
    EXPECT_FALSE(trims.is_due(now, kBurst, 0));
    times += trims.is_due(now + milliseconds(100), 0, 0) ? 1 : 0;
  }
  EXPECT_EQ(times, 2);  // in 20 s
  EXPECT_TRUE(trims.owes());
  EXPECT_TRUE(trims.is_due(kStart + seconds(40), 0, 0));
}

TEST(TrimPolicy, ManyConnectionsInAShortTimeAreABurst) {
  constexpr std::uint64_t kMany = TrimPolicy::kManyConnections;
  TrimPolicy trims;
  EXPECT_FALSE(trims.is_due(kStart, 0, 0));
  EXPECT_FALSE(trims.is_due(kStart + seconds(1), 0, kMany));
  EXPECT_TRUE(trims.is_due(kStart + milliseconds(1500), 0, kMany + 1));
  std::uint64_t came = 2 * kMany;
  static_cast<void>(trims.is_due(kStart + seconds(60), 0, came));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(trims.is_due(kStart + seconds(100 + 3 * i), 0, came += kMany - 1));
}

}  // namespace
}  // namespace collab::tcp
