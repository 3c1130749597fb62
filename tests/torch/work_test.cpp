// The queue that collectives of several steps wait in, where it ends before they have.
#include "torch/work.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>

namespace collab::torch_adapter {
namespace {

c10::intrusive_ptr<QueuedWork> make_work(std::function<void()> job) {
  return c10::make_intrusive<QueuedWork>("a collective", 0, c10d::OpType::BARRIER, QueuedWork::Results{},
                                         std::move(job), false);
}

// As a callback does that lets go of the last reference to its process group.
TEST(WorkQueue, FinishesPostedWorkWhenDestroyedOnItsWorker) {
  auto queue = std::make_unique<WorkQueue>();
  std::promise<void> all_posted;
  std::atomic<int> done{0};
  std::atomic<int> done_at_end{-1};
  const auto first = make_work([&] { all_posted.get_future().wait(); });
  first->getFuture()->addCallback([&](c10::ivalue::Future&) {
    queue.reset();
    done_at_end = done.load();
  });
  queue->post(first, [] {});
  std::vector<c10::intrusive_ptr<QueuedWork>> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(make_work([&] { ++done; }));
    queue->post(others.back(), [] {});
  }
  all_posted.set_value();
  first->wait();
  for (const auto& work : others) work->wait();
  EXPECT_EQ(done_at_end, 3);
}

TEST(WorkQueue, IsIdleOnceAllIsDone) {
  WorkQueue queue;
  EXPECT_TRUE(queue.idle());
  std::promise<void> goes_on;
  const auto work = make_work([&] { goes_on.get_future().wait(); });
  queue.post(work, [] {});
  EXPECT_FALSE(queue.idle());
  goes_on.set_value();
  queue.stop();
  EXPECT_TRUE(queue.idle());
}

TEST(WorkQueue, InAForkedChildItEndsWithoutItsWorker) {
  auto queue = std::make_unique<WorkQueue>();
  const auto work = make_work([] {});
  queue->post(work, [] {});
  work->wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    queue.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "it waited for a thread that it does not have";
}

}  // namespace
}  // namespace collab::torch_adapter
