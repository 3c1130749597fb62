// The weighted mean: fixed order, two roundings, bad numbers seen.
#include "core/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "collab/codec.h"
#include "core/base/prng.h"

namespace collab {
namespace {

std::vector<float> random_vector(Prng& random, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

TEST(MeanScales, AreTheSharesOfTheSum) {
  EXPECT_EQ(mean_scales(std::vector<double>{5}), (std::vector<float>{1.0F}));
  EXPECT_EQ(mean_scales(std::vector<double>{1, 3}), (std::vector<float>{0.25F, 0.75F}));
  EXPECT_EQ(mean_scales(std::vector<double>{0, 2, 0}), (std::vector<float>{0.0F, 1.0F, 0.0F}));
  EXPECT_EQ(mean_scales(std::vector<double>{1, 1, 1}), std::vector<float>(3, 1.0F / 3.0F));
}

TEST(MeanScales, SumInSiteOrder) {
  // 1e16 + 1 + 1 rounds to 1e16 in this order; 1 + 1 + 1e16 does not.
  EXPECT_EQ(mean_scales(std::vector<double>{1e16, 1, 1})[1], static_cast<float>(1.0 / 1e16));
  const std::vector<double> weights = {0.1, 0.2, 0.3};
  EXPECT_EQ(mean_scales(weights)[0], static_cast<float>(0.1 / (0.1 + 0.2 + 0.3)));
}

TEST(MeanScalesDeathTest, NoContributorsIsABug) {
  EXPECT_DEATH((void)mean_scales(std::vector<double>{0, 0}), "positive");
  EXPECT_DEATH((void)mean_scales(std::vector<double>{1, -1}), "negative");
}

TEST(AccumulateDifference, RoundsEachOperationOnItsOwn) {
  Prng random(1);
  for (const std::size_t n : {0, 1, 3, 15, 16, 17, 1000}) {
    const std::vector<float> a = random_vector(random, n);
    const std::vector<float> b = random_vector(random, n);
    const std::vector<float> start = random_vector(random, n);
    std::vector<float> first(n, 7.0F);
    std::vector<float> later = start;
    ASSERT_TRUE(accumulate_difference(a, b, 0.3F, true, first));
    ASSERT_TRUE(accumulate_difference(a, b, 0.3F, false, later));
    for (std::size_t i = 0; i < n; ++i) {
      const volatile float difference = a[i] - b[i];  // volatile: rounded on its own
      const volatile float product = 0.3F * difference;
      const volatile float sum = start[i] + product;
      ASSERT_EQ(first[i], product);
      ASSERT_EQ(later[i], sum);
    }
  }
}

// An owner adds its own delta without encoding it: with the exact codec nobody can tell.
TEST(AccumulateDifference, IsWhatTheExactCodecWouldGive) {
  Prng random(2);
  const std::vector<float> anchor = random_vector(random, 3001);
  const std::vector<float> mine = random_vector(random, 3001);
  const Codec& codec = codec_for(CodecId::kFp32);
  std::vector<std::byte> payload(codec.encoded_size(mine.size()));
  ASSERT_TRUE(codec.encode_difference(anchor, mine, payload));
  for (const bool first : {true, false}) {
    std::vector<float> decoded = random_vector(random, 3001);
    std::vector<float> direct = decoded;
    ASSERT_TRUE(
        (first ? codec.decode_scaled(payload, 0.7F, decoded) : codec.decode_accumulate(payload, 0.7F, decoded)).ok());
    ASSERT_TRUE(accumulate_difference(anchor, mine, 0.7F, first, direct));
    EXPECT_TRUE(same_bits(decoded, direct));
  }
}

TEST(AccumulateDifference, SeesNanAndInfinityWhereverTheyAre) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (std::size_t at = 0; at < 70; ++at) {
    for (const bool first : {true, false}) {
      std::vector<float> a(70, 1.0F);
      std::vector<float> b(70, 1.0F);
      std::vector<float> acc(70, 1.0F);
      EXPECT_TRUE(accumulate_difference(a, b, 0.5F, first, acc));
      a[at] = bad[at % 3];
      EXPECT_FALSE(accumulate_difference(a, b, 0.5F, first, acc)) << at;
      std::swap(a, b);
      EXPECT_FALSE(accumulate_difference(a, b, 0.5F, first, acc)) << at;
      a[at] = std::numeric_limits<float>::max();
      b[at] = -a[at];
      EXPECT_FALSE(accumulate_difference(a, b, 0.5F, first, acc)) << "the difference overflows at " << at;
    }
  }
}

}  // namespace
}  // namespace collab
