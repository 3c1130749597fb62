#include "core/base/event_queue.h"

#include <gtest/gtest.h>

#include <memory>

namespace collab {
namespace {

TEST(EventQueue, IsFirstInFirstOut) {
  EventQueue<std::unique_ptr<int>> queue;
  EXPECT_TRUE(queue.push(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.push(std::make_unique<int>(2)));
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(**queue.pop_until(kNever), 1);
  EXPECT_EQ(**queue.pop_until(kNever), 2);
}

TEST(EventQueue, ADeadlineThatHasPassedDoesNotWait) {
  EventQueue<int> queue;
  EXPECT_EQ(queue.pop_until(TimePoint{}), std::nullopt);
  queue.push(5);
  EXPECT_EQ(queue.pop_until(TimePoint{}), 5) << "what is there is handed out even after the deadline";
}

TEST(EventQueue, ClosedStillHandsOutWhatItHolds) {
  EventQueue<int> queue;
  queue.push(1);
  queue.close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.push(2));
  EXPECT_EQ(queue.pop_until(kNever), 1);
  EXPECT_EQ(queue.pop_until(kNever), std::nullopt);
}

}  // namespace
}  // namespace collab
