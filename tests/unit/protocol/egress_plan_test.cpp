// A budget lasts: the period grows before it is spent, and not earlier.
#include "core/protocol/egress_plan.h"

#include <gtest/gtest.h>

#include <utility>

namespace collab::protocol {
namespace {

constexpr std::uint64_t kRound = 50'000'000;

struct Spent {
  std::uint64_t intervals = 0;
  std::uint64_t rounds = 0;
  std::uint64_t rounds_at_full_pace = 0;
};

Spent spend(EgressPlan plan, std::uint64_t each = kRound) {
  Spent spent;
  std::uint64_t total = 0;
  while (!plan.over()) {
    const std::uint32_t intervals = plan.intervals();
    EXPECT_LE(intervals, wire::kMaxIntervals);
    EXPECT_GE(intervals, 1U);
    total += each;
    plan.sent(total);
    plan.round_ended(each, intervals);
    spent.intervals += intervals;
    ++spent.rounds;
    if (intervals == 1) ++spent.rounds_at_full_pace;
  }
  return spent;
}

TEST(EgressPlan, WithoutABudgetNothingIsPlanned) {
  EgressPlan plan(0);
  plan.sent(kRound);
  plan.round_ended(kRound, 1);
  EXPECT_FALSE(plan.on());
  EXPECT_EQ(plan.intervals(), 1U);
  EXPECT_FALSE(plan.over());
}

TEST(EgressPlan, IsSpentToTheLastRoundAndLastsManyTimesLonger) {
  const Spent spent = spend(EgressPlan(400 * kRound + kRound / 2));
  EXPECT_EQ(spent.rounds, 400U);
  EXPECT_NEAR(static_cast<double>(spent.rounds_at_full_pace), 200, 2);
  EXPECT_GT(spent.intervals, 7 * 400U);
  EXPECT_LT(spent.intervals, 10 * 400U);
}

TEST(EgressPlan, WhatIsLeftLastsAsLongAgain) {
  EgressPlan plan(100 * kRound);
  std::uint64_t total = 0;
  for (std::uint64_t round = 1; round <= 60; ++round) {
    const std::uint32_t intervals = plan.intervals();
    total += kRound;
    plan.sent(total);
    plan.round_ended(kRound, intervals);
    EXPECT_GE(plan.intervals() * plan.rounds_left(), plan.so_far().intervals) << "after round " << round;
  }
  EXPECT_EQ(plan.rounds_left(), 39U);
}

// As a site has it: what it tells goes with a round that is not paid yet, and holds after it.
TEST(EgressPlan, WhatIsToldHoldsAfterTheRoundItGoesWith) {
  for (const auto& [rounds, lasts] : {std::pair(5, 65), std::pair(20, 170), std::pair(400, 3500)}) {
    EgressPlan plan(static_cast<std::uint64_t>(rounds) * kRound + kRound / 2);
    std::uint64_t total = 0, lasted = 0;
    std::uint32_t agreed = 1;
    int paid = 0;
    for (; !plan.over(); ++paid) {
      const wire::Budget told = plan.told(agreed);
      EXPECT_EQ(told.spent, total);
      total += kRound;
      plan.sent(total);
      plan.round_ended(kRound, agreed);
      lasted += agreed;
      agreed = told.intervals;
      EXPECT_EQ(agreed, paid == 0 ? 1 : plan.intervals());
      EXPECT_EQ(told.rounds_left, paid == 0 ? 0 : plan.rounds_left());
    }
    EXPECT_EQ(paid, rounds);
    EXPECT_GE(lasted, static_cast<std::uint64_t>(lasts)) << rounds;
  }
}

TEST(EgressPlan, ATightBudgetIsStretchedFromTheStart) {
  EgressPlan plan(3 * kRound);
  EXPECT_EQ(plan.intervals(), 1U) << "what a round takes is not known yet";
  plan.sent(kRound);
  plan.round_ended(kRound, 1);
  EXPECT_EQ(plan.rounds_left(), 1U);
  plan.sent(2 * kRound);
  plan.round_ended(kRound, 5);
  EXPECT_EQ(plan.rounds_left(), 0U) << "the one that is left is for the end";
  EXPECT_EQ(plan.intervals(), wire::kMaxIntervals);
  EXPECT_FALSE(plan.over());
  plan.sent(3 * kRound);
  plan.round_ended(kRound, 64);
  EXPECT_TRUE(plan.over());
}

TEST(EgressPlan, GoesOnWhereAnEarlierProcessWas) {
  EgressPlan plan(100 * kRound, {90 * kRound, 200, kRound});
  plan.sent(kRound);
  plan.round_ended(kRound, 1);
  EXPECT_EQ(plan.so_far(), (Egress{91 * kRound, 201, kRound}));
  EXPECT_EQ(plan.intervals(), 26U);  // 201 / 8, upwards
}

TEST(EgressPlan, ARoundThatCostMoreIsRememberedForAWhile) {
  EgressPlan plan(100 * kRound);
  plan.sent(4 * kRound);
  plan.round_ended(4 * kRound, 1);
  EXPECT_EQ(plan.rounds_left(), 23U);
  for (int i = 0; i < 20; ++i) {
    plan.sent(5 * kRound);
    plan.round_ended(kRound, 1);
  }
  EXPECT_EQ(plan.rounds_left(), 94U);
}

TEST(EgressPlan, ABudgetThatIsOverspentIsOver) {
  EgressPlan plan(kRound, {3 * kRound, 7, 0});
  EXPECT_EQ(plan.left(), 0U);
  EXPECT_TRUE(plan.over());
}

}  // namespace
}  // namespace collab::protocol
