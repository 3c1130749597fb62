// Calls that wait for the loop of a hub link.
#include "core/runtime/hub_callers.h"

#include <gtest/gtest.h>

#include <vector>

namespace collab {
namespace {

bool is_told(std::future<void>& call) { return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

TEST(HubCallers, EachQuestionIsAnsweredOnceByItsId) {
  HubCallers callers;
  std::vector<std::uint64_t> done;
  const auto note = [&done](const protocol::HubExchanged& result) { done.push_back(result.id); };
  const std::uint64_t first = callers.exchanges(note);
  std::promise<Result<std::uint32_t>> asks, asks_too;
  auto sender = asks.get_future();
  auto none = asks_too.get_future();
  const std::uint64_t second = callers.resolves(std::move(asks));
  const std::uint64_t third = callers.resolves(std::move(asks_too));
  for (int i = 0; i < 2; ++i) {
    callers.exchanged({.id = first, .status = {}, .parts = {}, .absent = {}});
    callers.exchanged({.id = second, .status = {}, .parts = {}, .absent = {}});
    callers.resolved({second, {}, 3});
    callers.resolved({third, unavailable("it is gone"), 0});
  }
  EXPECT_EQ(done, std::vector<std::uint64_t>{first});
  EXPECT_EQ(*sender.get(), 3U);
  EXPECT_EQ(none.get().status().message(), "it is gone");
}

TEST(HubCallers, OnlyCallersThatWaitForAdmissionAreNotified) {
  HubCallers callers;
  auto entered = callers.enters();
  callers.entered();
  EXPECT_TRUE(entered.get().ok());
  callers.entered();
  EXPECT_FALSE(callers.broken(unavailable("the hub is gone"))) << "it is in";
  HubCallers others;
  auto refused = others.enters();
  EXPECT_TRUE(others.broken(unavailable("the hub is gone")));
  EXPECT_EQ(refused.get().message(), "the hub is gone");
}

TEST(HubCallers, LeavesOnceAndNotIfItIsBroken) {
  HubCallers callers;
  std::promise<void> leaves, again;
  auto left = leaves.get_future();
  auto at_once = again.get_future();
  EXPECT_TRUE(callers.leaves(std::move(leaves)));
  EXPECT_FALSE(callers.leaves(std::move(again)));
  EXPECT_TRUE(is_told(at_once));
  EXPECT_FALSE(is_told(left)) << "the link is closing";
  callers.left();
  callers.left();
  EXPECT_TRUE(is_told(left));
  HubCallers broken;
  broken.broken(unavailable("the hub is gone"));
  std::promise<void> late;
  auto told = late.get_future();
  EXPECT_FALSE(broken.leaves(std::move(late)));
  EXPECT_TRUE(is_told(told));
}

}  // namespace
}  // namespace collab
