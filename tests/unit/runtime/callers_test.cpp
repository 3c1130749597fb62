// Calls of the script that wait for the node's loop.
#include "core/runtime/callers.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

using Round = std::promise<Result<RoundReport>>;

TEST(Callers, ACallWaitsUntilItsOneAnswerComes) {
  Callers callers;
  Round asked;
  auto answer = asked.get_future();
  EXPECT_TRUE(callers.wait(callers.round, std::move(asked)));
  EXPECT_TRUE(callers.round.awaited());
  RoundReport report;
  report.round = RoundId(7);
  EXPECT_TRUE(callers.round.give(report));
  EXPECT_EQ(answer.get()->round, RoundId(7));
  EXPECT_FALSE(callers.round.give(report)) << "nobody waits";
}

// A caller goes on as soon as it is answered: before that the loop has to be done with what is the caller's.
TEST(Callers, AfterARefusalWaitingCallsFail) {
  Callers callers;
  Round before, after;
  std::promise<void> leaves;
  auto waits = before.get_future();
  auto refused = after.get_future();
  auto left = leaves.get_future();
  ASSERT_TRUE(callers.wait(callers.round, std::move(before)));
  const Status why = unavailable("the anchor is lost");
  callers.refuse(why);
  EXPECT_TRUE(callers.refused());
  EXPECT_FALSE(callers.wait(callers.round, std::move(after)));
  EXPECT_FALSE(callers.wait(callers.departure, std::move(leaves)));
  EXPECT_EQ(refused.get().status().message(), why.message());
  left.get();
  EXPECT_EQ(waits.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  callers.fail(why);
  EXPECT_EQ(waits.get().status().message(), why.message());
}

}  // namespace
}  // namespace collab
