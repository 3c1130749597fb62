#include "core/base/rate_limited.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

using std::chrono::seconds;

TEST(RateLimited, ALineOnceInAWhileAndHowManyThereWereBetween) {
  RateLimited rate_limited{seconds(60)};
  TimePoint now{};
  EXPECT_EQ(rate_limited.let(now, "first"), "first");
  now += seconds(59);
  EXPECT_EQ(rate_limited.let(now, "second"), std::nullopt);
  EXPECT_EQ(rate_limited.let(now, "third"), std::nullopt);
  now += seconds(1);
  EXPECT_EQ(rate_limited.let(now, "fourth"), "fourth (and 2 others since the last such line)");
  now += seconds(60);
  EXPECT_EQ(rate_limited.let(now, "fifth"), "fifth");
}

}  // namespace
}  // namespace collab
