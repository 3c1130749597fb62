#include "core/base/rate_limit.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

using std::chrono::seconds;

TEST(RateLimit, LetsALineThroughOnceInAWhileAndCountsTheOthers) {
  RateLimit limit{seconds(60)};
  TimePoint now{};
  EXPECT_EQ(limit.allow(now, "first"), "first");
  now += seconds(59);
  EXPECT_EQ(limit.allow(now, "second"), std::nullopt);
  EXPECT_EQ(limit.allow(now, "third"), std::nullopt);
  now += seconds(1);
  EXPECT_EQ(limit.allow(now, "fourth"), "fourth (and 2 others since the last such line)");
  now += seconds(60);
  EXPECT_EQ(limit.allow(now, "fifth"), "fifth");
}

}  // namespace
}  // namespace collab
