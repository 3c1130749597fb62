#include "core/base/prng.h"

#include <gtest/gtest.h>

#include <array>

namespace collab {
namespace {

// The published first outputs for this seed.
TEST(Prng, SplitMix64MeetsItsReference) {
  SplitMix64 source(1234567);
  EXPECT_EQ(source.next(), 6457827717110365317U);
  EXPECT_EQ(source.next(), 3203168211198807973U);
  EXPECT_EQ(source.next(), 9817491932198370423U);
}

// Computed apart from this code, from the authors' definition.
TEST(Prng, Xoshiro256MeetsItsReference) {
  Prng source(2026);
  EXPECT_EQ(source.next(), 10583478199052185109U);
  EXPECT_EQ(source.next(), 5232962402658359512U);
  EXPECT_EQ(source.next(), 14988153452874227418U);
  EXPECT_EQ(source.next(), 16485387573092771586U);
}

TEST(Prng, BelowReachesAllAndOnlyWhatIsBelow) {
  Prng source(3);
  std::array<int, 7> hits{};
  for (int i = 0; i < 7000; ++i) ++hits.at(source.below(7));
  for (const int hit : hits) EXPECT_NEAR(hit, 1000, 150);
}

TEST(Prng, UniformStaysInItsInterval) {
  Prng source(4);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double x = source.uniform();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

}  // namespace
}  // namespace collab
