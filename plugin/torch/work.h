// Collectives of several steps: one worker thread runs them in order of issue and completes their futures.
//
// Threads: post() from one thread at a time, or from a callback on the worker itself. A job posted on the worker runs
// at once, as a callback may wait for it. This also keeps the order the same at all ranks (even a late callback runs
// before the next collective is issued). Ownership: a job keeps its tensors alive until it has run. If a queue is
// destroyed on its own worker, the worker lives on and no longer touches the queue. In a forked child, which has no
// worker, a queue ends without one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace collab::torch_adapter {

class QueuedWork final : public c10d::Work {
 public:
  using Results = std::vector<std::vector<at::Tensor>>;

  // `where` names the collective, the rank and the site in errors. `from_hook`: callbacks of the future belong to a
  // communication hook (see CollabBackend).
  QueuedWork(std::string where, int rank, c10d::OpType type, Results results, std::function<void()> job,
             bool from_hook);

  // Runs the job, then completes the future and the work. Converts errors, the only place to do so. Calls `failed`
  // before it reports a failure to anyone.
  void execute(const std::function<void()>& failed);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  // For a receive: the rank of the sender, valid once the receive is complete.
  void set_source(std::shared_ptr<std::atomic<int>> source) { source_ = std::move(source); }
  int sourceRank() const override { return source_ ? source_->load() : c10d::Work::sourceRank(); }

 private:
  std::shared_ptr<std::atomic<int>> source_;
  std::string where_;
  Results results_;
  std::function<void()> job_;
  bool from_hook_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A send or receive on staged memory. As with Gloo's, wait() finishes it.
class StagedPointToPoint final : public c10d::Work {
 public:
  StagedPointToPoint(c10::intrusive_ptr<c10d::Work> inner, c10d::OpType type, std::function<void()> copy_back);
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  int sourceRank() const override { return inner_->sourceRank(); }
  void abort() override { inner_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
  std::function<void()> copy_back_;
};

// Marks this thread, while it lives, as running a communication hook of DDP: the hook itself, or callbacks of futures
// that the hook got from the backend.
class CommunicationHookScope {
 public:
  explicit CommunicationHookScope(bool on = true);
  ~CommunicationHookScope();
  CommunicationHookScope(const CommunicationHookScope&) = delete;
  CommunicationHookScope& operator=(const CommunicationHookScope&) = delete;
  [[nodiscard]] static bool active();

 private:
  bool before_;
};

class WorkQueue {
 public:
  WorkQueue();
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Starts the worker on first use. `failed` is called on the worker when a job has failed.
  void post(c10::intrusive_ptr<QueuedWork> work, std::function<void()> failed);
  // Finishes the posted jobs, then ends the worker; later posts throw. Idempotent.
  void stop();
  // True if no job runs or waits.
  [[nodiscard]] bool idle() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  pid_t owner_;
  std::thread worker_;  // guarded by the mutex in shared_
};

}  // namespace collab::torch_adapter
