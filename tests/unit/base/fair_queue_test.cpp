#include "core/base/fair_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace collab {
namespace {

TEST(FairQueue, ASourceIsFirstInFirstOut) {
  FairQueue<std::unique_ptr<int>> queue;
  EXPECT_TRUE(queue.push(0, std::make_unique<int>(1)));
  EXPECT_TRUE(queue.push(0, std::make_unique<int>(2)));
  EXPECT_EQ(**queue.pop_until(kNever), 1);
  EXPECT_EQ(**queue.pop_until(kNever), 2);
}

TEST(FairQueue, ABusySenderDelaysOnlyItself) {
  FairQueue<int> queue;
  for (int i = 0; i < 1000; ++i) queue.push(1, i);
  queue.push(2, -1);
  queue.push(2, -2);
  queue.push(3, -3);
  std::vector<int> first;
  for (int i = 0; i < 6; ++i) first.push_back(*queue.pop_until(kNever));
  EXPECT_EQ(first, (std::vector{0, -1, -3, 1, -2, 2}));
}

TEST(FairQueue, LargeOnesOfManyHoldUpNoSmallOne) {
  FairQueue<int> queue;
  for (std::uint64_t source = 10; source < 60; ++source) queue.push(source, 100, 5'000'000);
  for (int i = 0; i < 50; ++i) {
    for (const int small : {1, 2, 3}) queue.push(1, small, 100);
    for (const int small : {1, 2, 3}) EXPECT_EQ(queue.pop_until(kNever), small);
    EXPECT_EQ(queue.pop_until(kNever), 100) << "nothing else waits";
  }
}

// However many small ones there are.
TEST(FairQueue, ALargeOneHasItsTurnAfterEightOthers) {
  FairQueue<int> queue;
  for (const std::uint64_t source : {2, 3}) {
    for (int i = 0; i < 100; ++i) queue.push(source, i);
  }
  queue.push(1, -1, 100'000);
  queue.push(1, 100);  // behind it
  std::vector<int> first;
  for (int i = 0; i < 12; ++i) first.push_back(*queue.pop_until(kNever));
  EXPECT_EQ(first, (std::vector{0, 0, 1, 1, 2, 2, 3, 3, -1, 4, 4, 100}));
}

TEST(FairQueue, ADeadlineThatHasPassedDoesNotWait) {
  FairQueue<int> queue;
  EXPECT_EQ(queue.pop_until(TimePoint{}), std::nullopt);
  queue.push(0, 5);
  EXPECT_EQ(queue.pop_until(TimePoint{}), 5) << "what is there is handed out even after the deadline";
}

TEST(FairQueue, AClosedQueueStillHandsOutItsItems) {
  FairQueue<int> queue;
  queue.push(0, 1);
  queue.close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.push(0, 2));
  EXPECT_EQ(queue.pop_until(kNever), 1);
  EXPECT_EQ(queue.pop_until(kNever), std::nullopt);
}

}  // namespace
}  // namespace collab
