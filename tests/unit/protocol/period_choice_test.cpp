#include "core/protocol/coordinator/period_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace collab::protocol {
namespace {

constexpr PeriodRule kBlocking{.target = 0.02, .behind = false, .first = 10};
constexpr PeriodRule kBehind{.target = 0.02, .behind = true, .first = 10};

// What it comes to after rounds of this pace.
std::uint32_t after(const std::vector<Pace>& rounds, const PeriodRule& rule = kBlocking) {
  PeriodChoice choice;
  choice.go_on_from(rule.first);
  for (const Pace& pace : rounds) choice.measured(pace, rule);
  return choice.in_force();
}

TEST(PeriodChoice, IsTheShortestWithWhichARoundTakesItsPart) {
  for (const auto& [step, round, period] : {std::tuple{0.1, 1.0, 500U},
                                            {0.1, 0.2, 100U},
                                            {0.5, 1.001, 101U},         // rounded up
                                            {1.0, 0.001, 1U},           // at least
                                            {0.001, 10.0, 10'000U}}) {  // at most
    EXPECT_EQ(after({{step, round}}), period) << step << " " << round;
  }
  EXPECT_EQ(after({{0.1, 1}}, {.target = 0.5, .first = 10}), 20U);
}

TEST(PeriodChoice, BehindTheTrainingARoundIsMergedBeforeTheNext) {
  EXPECT_EQ(after({{0.5, 10}}, kBehind), 22U);  // 10 s of 0.5 s, 5 % more, and the step at which it is merged
  EXPECT_EQ(after({{1, 0.01}}, kBehind), 2U);
  EXPECT_EQ(after({{0.001, 3600}}, kBehind), 10'000U);
}

TEST(PeriodChoice, OneRoundIsEnoughOnSteadyLines) {
  PeriodChoice choice;
  choice.go_on_from(10);
  EXPECT_TRUE(choice.measured({0.1, 1}, kBlocking));
  EXPECT_EQ(choice.in_force(), 500U);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(choice.measured({0.1, 1}, kBlocking)) << "told once";
  EXPECT_EQ(choice.in_force(), 500U);
}

TEST(PeriodChoice, TheFirstChoiceIsReportedEvenIfItChangesNothing) {
  PeriodChoice choice;
  choice.go_on_from(10);
  EXPECT_TRUE(choice.measured({1, 0.2}, kBlocking));
  EXPECT_EQ(choice.in_force(), 10U);
  EXPECT_FALSE(choice.measured({1, 0.2}, kBlocking));
}

TEST(PeriodChoice, AMedianOfThreeRoundsCounts) {
  const Pace usual{0.1, 1};
  EXPECT_EQ(after({usual, usual, {0.1, 60}}), 500U) << "one round was held up";
  EXPECT_EQ(after({usual, usual, {4, 1}}), 500U) << "one step was";
  EXPECT_EQ(after({usual, usual, {0.1, 2}, {0.1, 2}}), 1000U) << "the line has changed";
  EXPECT_EQ(after({usual, {0.1, 3}}), 1000U) << "of two, their middle";
}

TEST(PeriodChoice, ChangesOfLessThanATenthAreNotMade) {
  PeriodChoice choice;
  choice.go_on_from(10);
  choice.measured({0.1, 1}, kBlocking);
  for (int i = 0; i < 60; ++i) {
    choice.measured({0.1, i % 2 == 0 ? 1.09 : 0.91}, kBlocking);
    EXPECT_EQ(choice.in_force(), 500U) << i;
  }
  for (int i = 0; i < 3; ++i) choice.measured({0.1, 1.12}, kBlocking);
  EXPECT_EQ(choice.in_force(), 560U);
  for (int i = 0; i < 3; ++i) choice.measured({0.1, 0.99}, kBlocking);
  EXPECT_EQ(choice.in_force(), 495U);
}

TEST(PeriodChoice, AShortPeriodDoesNotOscillateByRounding) {
  PeriodChoice choice;
  choice.go_on_from(10);
  std::uint32_t changes = 0;
  for (int i = 0; i < 60; ++i) {
    const double needed = i / 3 % 2 == 0 ? 2.96 : 3.04;
    const std::uint32_t before = choice.in_force();
    choice.measured({1, needed * kBlocking.target}, kBlocking);
    changes += choice.in_force() != before ? 1 : 0;
  }
  EXPECT_EQ(changes, 1U) << "from the first one";
  EXPECT_EQ(choice.in_force(), 3U);
}

TEST(PeriodChoice, KnowsNothingOfOtherSites) {
  PeriodChoice choice;
  choice.go_on_from(10);
  for (int i = 0; i < 3; ++i) choice.measured({0.1, 1}, kBlocking);
  choice.other_sites();
  EXPECT_EQ(choice.in_force(), 500U) << "until a round of theirs was measured";
  EXPECT_TRUE(choice.measured({0.1, 4}, kBlocking));
  EXPECT_EQ(choice.in_force(), 2000U) << "no older one counts";
}

}  // namespace
}  // namespace collab::protocol
