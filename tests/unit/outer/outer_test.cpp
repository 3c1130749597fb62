// The outer optimizers: what they compute, in which order, and against PyTorch's SGD.
#include "core/outer/outer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/prng.h"

namespace collab {
namespace {

std::vector<float> random_vector(Prng& random, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

TEST(Outer, OnlyNesterovHasState) {
  EXPECT_FALSE(has_outer_state(OuterId::kAverage));
  EXPECT_FALSE(has_outer_state(OuterId::kRda));
  EXPECT_TRUE(has_outer_state(OuterId::kNesterov));
}

TEST(Outer, AverageWithRateOneIsAnchorMinusMean) {
  Prng random(1);
  const std::vector<float> anchor = random_vector(random, 1003);
  const std::vector<float> mean = random_vector(random, 1003);
  std::vector<float> result = mean;
  outer_step({OuterId::kAverage, 1.0F, 0.9F}, anchor, result, {});
  for (std::size_t i = 0; i < anchor.size(); ++i) ASSERT_EQ(result[i], anchor[i] - mean[i]);
}

TEST(Outer, EveryOperationIsRoundedOnItsOwn) {
  Prng random(2);
  for (const std::size_t n : {0, 1, 7, 16, 1003}) {
    const std::vector<float> anchor = random_vector(random, n);
    const std::vector<float> mean = random_vector(random, n);
    const std::vector<float> momentum_before = random_vector(random, n);
    std::vector<float> average = mean;
    outer_step({OuterId::kAverage, 0.7F, 0.9F}, anchor, average, {});
    std::vector<float> nesterov = mean;
    std::vector<float> momentum = momentum_before;
    outer_step({OuterId::kNesterov, 0.7F, 0.9F}, anchor, nesterov, momentum);
    for (std::size_t i = 0; i < n; ++i) {  // volatile: rounded on its own
      const volatile float step = 0.7F * mean[i];
      ASSERT_EQ(average[i], anchor[i] - step);
      const volatile float kept = 0.9F * momentum_before[i];
      const volatile float m = kept + mean[i];
      ASSERT_EQ(momentum[i], m);
      const volatile float ahead = 0.9F * m;
      const volatile float direction = mean[i] + ahead;
      const volatile float move = 0.7F * direction;
      ASSERT_EQ(nesterov[i], anchor[i] - move);
    }
  }
}

// The figures are from torch.optim.SGD([p], lr=0.7, momentum=0.9, nesterov=True) in PyTorch 2.13.
TEST(Outer, NesterovIsPyTorchsSgd) {
  const std::vector<std::vector<float>> gradients = {
      {0.1F, 0.2F, -0.3F, 1e-6F}, {0.05F, -0.1F, 0.0F, 2e-6F}, {-0.2F, 0.3F, 0.4F, -1e-6F}};
  const std::vector<std::vector<float>> expected = {
      {0.8669999837875366F, -2.2660000324249268F, 0.8989999890327454F, 1.670000187914411e-06F},
      {0.7437999844551086F, -2.2464001178741455F, 1.069100022315979F, -1.5569996776321204e-06F},
      {0.9304199814796448F, -2.6907601356506348F, 0.6901900172233582F, -1.871299559752515e-06F}};
  std::vector<float> anchor = {1.0F, -2.0F, 0.5F, 3e-6F};
  std::vector<float> momentum(4, 0.0F);
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    std::vector<float> next = gradients[step];
    outer_step({OuterId::kNesterov, 0.7F, 0.9F}, anchor, next, momentum);
    for (std::size_t i = 0; i < next.size(); ++i) {
      EXPECT_NEAR(next[i], expected[step][i], 3e-7 * std::abs(double{expected[step][i]})) << step << " " << i;
    }
    anchor = next;
  }
}

TEST(AutoOuterLr, IsTheTableOfThePaperAndStraightBetween) {
  const std::vector<std::pair<std::size_t, float>> expected = {{1, 0.4F}, {2, 0.6F},  {3, 0.6F}, {4, 0.6F}, {5, 0.65F},
                                                               {6, 0.7F}, {7, 0.75F}, {8, 0.8F}, {9, 0.8F}, {64, 0.8F}};
  for (const auto& [sites, lr] : expected) EXPECT_EQ(auto_outer_lr(sites, 30), lr) << sites;
  EXPECT_EQ(auto_outer_lr(0, 30), 0.4F) << "nobody has steps: nothing is applied";
}

TEST(AutoOuterLr, RisesWithThePeriodUpToOne) {
  EXPECT_EQ(auto_outer_lr(2, 1), 0.6F) << "shorter ones are as thirty";
  EXPECT_EQ(auto_outer_lr(2, 60), 0.65F);
  EXPECT_EQ(auto_outer_lr(2, 240), 0.75F);
  EXPECT_EQ(auto_outer_lr(8, 1'000'000'000), 1.0F);
  for (const std::size_t sites : {1, 2, 3, 5, 8, 100}) {
    float before = 0;
    for (std::uint64_t period = 1; period < 5'000; period += 7) {
      const float lr = auto_outer_lr(sites, period);
      ASSERT_GE(lr, before) << sites << " " << period;
      ASSERT_GE(auto_outer_lr(sites + 1, period), lr) << sites << " " << period;
      before = lr;
    }
  }
}

TEST(AutoOuterLr, StandsForZeroAlone) {
  const OuterConfig by_sites{.id = OuterId::kNesterov, .lr = 0, .period = 60};
  EXPECT_EQ(for_contributors(by_sites, 8).lr, 0.85F);
  EXPECT_EQ(for_contributors(by_sites, 1).lr, 0.45F);
  EXPECT_EQ(for_contributors({.id = OuterId::kNesterov, .lr = 0.3F}, 8).lr, 0.3F);
  EXPECT_EQ(for_contributors({.id = OuterId::kAverage, .lr = 0}, 8).lr, 1.0F);
}

TEST(Rda, TakesTheStepOfAverageAndEqualsItForOneContributor) {
  Prng random(4);
  const std::vector<float> anchor = random_vector(random, 1003);
  std::vector<float> of_average = random_vector(random, 1003);
  std::vector<float> of_rda = of_average;
  outer_step({OuterId::kAverage, 0.7F, 0.9F}, anchor, of_average, {});
  outer_step({OuterId::kRda, 0.7F, 0.9F}, anchor, of_rda, {});
  EXPECT_EQ(of_rda, of_average);
  const OuterConfig config{.id = OuterId::kRda, .lr = 0};
  EXPECT_EQ(for_contributors(config, 1).id, OuterId::kAverage);
  EXPECT_EQ(for_contributors(config, 2).id, OuterId::kRda);
  EXPECT_EQ(for_contributors(config, 2).lr, 1.0F);
}

TEST(Clip, TheNormOfTheVectorIsSummedInAFixedOrder) {
  EXPECT_EQ(norm_of({}), 0);
  EXPECT_EQ(norm_of(std::vector<float>{3, -4}), 5);
  EXPECT_NEAR(norm_of(std::vector<float>(1'001, 2e38F)) / 2e38, std::sqrt(1'001.0), 1e-5) << "beyond float32";
  Prng random(3);
  const std::vector<float> vector = random_vector(random, 1003);
  // As the header of outer.cpp's loop has it: eight sums of every eighth square, added from the first on.
  std::vector<double> sums(8);
  for (std::size_t i = 0; i < vector.size(); ++i) sums[i % 8] += double{vector[i]} * double{vector[i]};
  double sum = 0;
  for (const double each : sums) sum += each;
  EXPECT_EQ(norm_of(vector), std::sqrt(sum));
}

TEST(Clip, ShrinksALongMeanToTheMaximumNorm) {
  EXPECT_EQ(clip_factor(0, 1e30), 1.0F);
  EXPECT_EQ(clip_factor(2, 2), 1.0F);
  EXPECT_EQ(clip_factor(2, 8), 0.25F);
  std::vector<float> vector{3, -4};
  multiply(vector, clip_factor(2.5F, norm_of(vector)));
  EXPECT_EQ(vector, (std::vector<float>{1.5F, -2}));
}

TEST(OuterDeathTest, StateOfAnotherSizeIsABug) {
  std::vector<float> two(2);
  std::vector<float> one(1);
  EXPECT_DEATH(outer_step({OuterId::kNesterov, 1.0F, 0.9F}, two, two, one), "outer state");
  EXPECT_DEATH(outer_step({OuterId::kAverage, 1.0F, 0.9F}, two, one, {}), "one length");
}

}  // namespace
}  // namespace collab
