// What a site has sent, against what it may send.
#include "core/protocol/site/egress_budget.h"

#include <gtest/gtest.h>

#include <vector>

namespace collab::protocol {
namespace {

constexpr std::uint64_t kRound = 50'000'000;

// Takes part in rounds until it is over, or for as many as there are; says after each what is new.
std::vector<unsigned> news_of(EgressBudget& budget, std::uint64_t rounds) {
  std::vector<unsigned> news;
  for (std::uint64_t round = 1; round <= rounds && !budget.over(); ++round) {
    budget.sent(round * kRound);
    budget.round_ended(kRound);
    news.push_back(budget.news());
    EXPECT_EQ(budget.news(), 0U) << "told once";
  }
  return news;
}

TEST(EgressBudget, ABudgetOfZeroIsNeverOver) {
  EgressBudget budget(0);
  EXPECT_EQ(news_of(budget, 3), (std::vector<unsigned>{0, 0, 0}));
  EXPECT_FALSE(budget.on());
  EXPECT_FALSE(budget.half_spent());
  EXPECT_FALSE(budget.over());
}

TEST(EgressBudget, IsOverWhenTheNextRoundDoesNotFit) {
  EgressBudget budget(3 * kRound + kRound / 2);
  EXPECT_FALSE(budget.known()) << "what the first round takes";
  for (std::uint64_t round = 1; round <= 3; ++round) {
    EXPECT_FALSE(budget.over());
    budget.sent(round * kRound);
    budget.round_ended(kRound);
    EXPECT_EQ(budget.rounds_left(), 3 - round);
  }
  EXPECT_TRUE(budget.over());
}

TEST(EgressBudget, TheLastRoundMayTakeAllThatIsLeft) {
  EgressBudget budget(2 * kRound, {kRound, kRound});
  EXPECT_EQ(budget.rounds_left(), 1U);
  EXPECT_FALSE(budget.over());
}

TEST(EgressBudget, EachMarkIsToldOnce) {
  EgressBudget budget(20 * kRound);
  EXPECT_EQ(news_of(budget, 100),
            (std::vector<unsigned>{0, 0, 0, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0, 0, 0, 80, 0, 0, 95, EgressBudget::kOver}));
}

TEST(EgressBudget, ReportsTheHighestOfMarksPassedAtOnce) {
  EgressBudget budget(100 * kRound);
  budget.sent(96 * kRound);
  budget.round_ended(kRound);
  EXPECT_EQ(budget.news(), 95U);
  EgressBudget tight(3 * kRound);
  tight.sent(2 * kRound);
  tight.round_ended(2 * kRound);
  EXPECT_EQ(tight.news(), EgressBudget::kOver);
}

TEST(EgressBudget, HalfIsSpentAtHalfAndNotBefore) {
  for (const std::uint64_t total : {1U, 7U, 100U, 101U}) {
    EXPECT_FALSE(EgressBudget(total, {total / 2 - (total % 2 == 0 ? 1 : 0), 1}).half_spent()) << total;
    EXPECT_TRUE(EgressBudget(total, {total / 2 + total % 2, 1}).half_spent()) << total;
  }
}

TEST(EgressBudget, ContinuesWithTheSpendingOfAnEarlierProcess) {
  EgressBudget budget(100 * kRound, {84 * kRound, kRound});
  budget.sent(kRound);
  budget.round_ended(kRound);
  EXPECT_EQ(budget.so_far(), (Egress{85 * kRound, kRound}));
  EXPECT_EQ(budget.news(), 0U) << "that process told of 80 percent";
  budget.sent(11 * kRound);
  EXPECT_EQ(budget.news(), 95U);
}

TEST(EgressBudget, ARoundThatCostMoreIsRememberedForAWhile) {
  EgressBudget budget(100 * kRound);
  budget.sent(4 * kRound);
  budget.round_ended(4 * kRound);
  EXPECT_EQ(budget.rounds_left(), 24U);
  for (int i = 0; i < 20; ++i) {
    budget.sent(5 * kRound);
    budget.round_ended(kRound);
  }
  EXPECT_EQ(budget.rounds_left(), 95U);
}

TEST(EgressBudget, AnOverspentBudgetIsOver) {
  EgressBudget budget(kRound, {3 * kRound, 0});
  EXPECT_EQ(budget.left(), 0U);
  EXPECT_TRUE(budget.over());
  EXPECT_EQ(budget.news(), EgressBudget::kOver) << "each process says why it does not take part";
}

}  // namespace
}  // namespace collab::protocol
