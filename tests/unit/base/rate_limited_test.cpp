#include "core/base/rate_limited.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

using std::chrono::seconds;

TEST(Sparing, ALineOnceInAWhileAndHowManyThereWereBetween) {
  Sparing sparing{seconds(60)};
  TimePoint now{};
  EXPECT_EQ(sparing.let(now, "first"), "first");
  now += seconds(59);
  EXPECT_EQ(sparing.let(now, "second"), std::nullopt);
  EXPECT_EQ(sparing.let(now, "third"), std::nullopt);
  now += seconds(1);
  EXPECT_EQ(sparing.let(now, "fourth"), "fourth (and 2 others since the last such line)");
  now += seconds(60);
  EXPECT_EQ(sparing.let(now, "fifth"), "fifth");
}

}  // namespace
}  // namespace collab
