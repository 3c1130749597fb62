// When a helper offers itself, and what whoever runs it is told.
#include "core/runtime/helping.h"

#include <gtest/gtest.h>

#include <vector>

namespace collab {
namespace {

using std::chrono::seconds;

TEST(Helping, OffersItselfAfterAJoinAndAfterEachRound) {
  std::vector<Status> told;
  Helping helping([&told](const Status& status) { told.push_back(status); });
  TimePoint now{seconds(5)};
  EXPECT_TRUE(helping.is_joining());
  EXPECT_FALSE(helping.is_due(now));
  helping.joined(now);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].ok());
  EXPECT_FALSE(helping.is_joining());
  EXPECT_TRUE(helping.is_due(now));
  EXPECT_FALSE(helping.is_due(now)) << "once";
  helping.round_over(now);
  EXPECT_TRUE(helping.is_due(now));
  helping.round_skipped(now);
  EXPECT_FALSE(helping.is_due(now));
  EXPECT_EQ(helping.next_deadline(), now + Helping::kBetweenOffers);
  EXPECT_TRUE(helping.is_due(now + Helping::kBetweenOffers));
  helping.ended(cancelled("enough"));
  EXPECT_EQ(told.back().message(), "enough");
}

TEST(Helping, ASiteThatTrainsNeverDoes) {
  Helping helping(nullptr);
  EXPECT_FALSE(helping.is_joining());
  helping.round_over(TimePoint(seconds(5)));
  helping.round_skipped(TimePoint(seconds(5)));
  helping.ended(cancelled("enough"));
  EXPECT_EQ(helping.next_deadline(), kNever);
}

}  // namespace
}  // namespace collab
