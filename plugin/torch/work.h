// Collectives of several steps: one worker thread runs them in the order they were issued and completes their
// futures.
//
// Threads: post() from any one thread at a time, or from a callback on the worker itself. A job posted on the worker
// runs at once: a callback that waits for its own collective must not wait for itself. This also keeps the ranks' order
// alike (a late callback too runs before the next collective is issued). Ownership: a job keeps its tensors alive until
// it has run. The worker outlives a queue that is destroyed on it, and no longer touches it. In a forked child, which
// has no worker, a queue ends without one.
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

  // `where` names the collective, the rank and the site for errors. `from_hook`: callbacks of the future belong to
  // a communication hook (see CollabBackend).
  QueuedWork(std::string where, int rank, c10d::OpType type, Results results, std::function<void()> job,
             bool from_hook);

  // Runs the job and completes the future and the work; errors are converted here, once.
  // `failed` is called before anyone is told of a failure.
  void execute(const std::function<void()>& failed);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  // For a receive: the rank that sent it, once it is completed.
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

// A send or receive on staged memory: as with Gloo's, it is wait() that finishes it.
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

// A communication hook of DDP runs on this thread while one of these lives: the hook itself, or callbacks of futures
// that it has got from the backend.
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
  // Finishes what was posted, then ends the worker; later posts throw. Idempotent.
  void stop();
  // Nothing is in progress or waits.
  [[nodiscard]] bool idle() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  pid_t owner_;
  std::thread worker_;  // guarded by the mutex of what is shared
};

}  // namespace collab::torch_adapter
