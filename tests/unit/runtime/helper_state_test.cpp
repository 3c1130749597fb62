// When a helper offers itself, and what its operator is told.
#include "core/runtime/helper_state.h"

#include <gtest/gtest.h>

#include <vector>

namespace collab {
namespace {

using std::chrono::seconds;

TEST(HelperState, OffersItselfAfterAJoinAndAfterEachRound) {
  std::vector<Status> told;
  HelperState helper_state([&told](const Status& status) { told.push_back(status); });
  TimePoint now{seconds(5)};
  EXPECT_TRUE(helper_state.is_joining());
  EXPECT_FALSE(helper_state.is_due(now));
  helper_state.joined(now);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].ok());
  EXPECT_FALSE(helper_state.is_joining());
  EXPECT_TRUE(helper_state.is_due(now));
  EXPECT_FALSE(helper_state.is_due(now)) << "once";
  helper_state.round_over(now);
  EXPECT_TRUE(helper_state.is_due(now));
  helper_state.round_skipped(now);
  EXPECT_FALSE(helper_state.is_due(now));
  EXPECT_EQ(helper_state.next_deadline(), now + HelperState::kBetweenOffers);
  EXPECT_TRUE(helper_state.is_due(now + HelperState::kBetweenOffers));
  helper_state.ended(cancelled("enough"));
  EXPECT_EQ(told.back().message(), "enough");
}

TEST(HelperState, ASiteThatTrainsNeverDoes) {
  HelperState helper_state(nullptr);
  EXPECT_FALSE(helper_state.is_joining());
  helper_state.round_over(TimePoint(seconds(5)));
  helper_state.round_skipped(TimePoint(seconds(5)));
  helper_state.ended(cancelled("enough"));
  EXPECT_EQ(helper_state.next_deadline(), kNever);
}

}  // namespace
}  // namespace collab
