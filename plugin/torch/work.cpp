#include "torch/work.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "torch/torch_private.h"

namespace collab::torch_adapter {
namespace {

// The queue whose worker this thread is, and whether a communication hook runs on it.
thread_local const void* worker_of = nullptr;
thread_local bool in_communication_hook = false;

std::exception_ptr converted(const std::string& where, const std::string& what) {
  try {
    C10_THROW_ERROR(DistBackendError, "collab: " + where + " failed: " + what + " [ddp.collective-failed]");
  } catch (...) {
    return std::current_exception();
  }
}

c10::TypePtr future_type(std::size_t lists) {
  c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  return lists > 1 ? c10::ListType::create(tensors) : tensors;
}

std::vector<c10::Device> devices_of(const QueuedWork::Results& results) {
  std::vector<c10::Device> devices;
  for (const auto& list : results) {
    for (const at::Tensor& tensor : list) {
      if (!tensor.device().is_cpu()) devices.push_back(tensor.device());
    }
  }
  return devices;
}

}  // namespace

QueuedWork::QueuedWork(std::string where, int rank, c10d::OpType type, Results results, std::function<void()> job,
                       bool from_hook)
    : c10d::Work(rank, type),
      where_(std::move(where)),
      results_(std::move(results)),
      job_(std::move(job)),
      from_hook_(from_hook),
      future_(c10::make_intrusive<c10::ivalue::Future>(future_type(results_.size()), devices_of(results_))) {}

void QueuedWork::execute(const std::function<void()>& failed) {
  // The worker starts on device 0. Copies and events of another device would switch back to it and create a context.
  c10::OptionalDeviceGuard here;
  if (const auto devices = devices_of(results_); !devices.empty()) here.reset_device(devices.front());
  std::exception_ptr error;
  try {
    job_();
  } catch (const c10::Error& e) {
    error = converted(where_, e.what_without_backtrace());
  } catch (const std::exception& e) {
    error = converted(where_, e.what());
  } catch (...) {
    error = converted(where_, "an exception that is not a std::exception");
  }
  job_ = nullptr;  // releases its tensors before reporting completion
  if (error) failed();

  const CommunicationHookScope scope(from_hook_);
  if (error) {
    future_->setError(error);
  } else if (results_.size() > 1) {
    future_->markCompleted(c10::IValue(results_));
  } else {
    future_->markCompleted(c10::IValue(results_.empty() ? std::vector<at::Tensor>() : results_[0]));
  }
  finish(error);
}

bool QueuedWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto done = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, done);  // bounded by the time-outs of the job's steps
  } else if (!cv_.wait_for(lock, timeout, done)) {
    C10_THROW_ERROR(
        DistBackendError,
        "collab: " + where_ + " is not done after " + std::to_string(timeout.count()) +
            " ms of wait(); other ranks have not reached it yet, or their links are slow [ddp.collective-timeout]");
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

std::vector<at::Tensor> QueuedWork::result() {
  TORCH_CHECK(isCompleted(), "collab: ", where_, " is not completed; call wait() before result() [ddp.not-completed]");
  TORCH_CHECK(results_.size() <= 1,
              "collab: result() does not support lists of lists; use get_future().value() [ddp.no-lists]");
  return results_.empty() ? std::vector<at::Tensor>() : results_[0];
}

StagedPointToPoint::StagedPointToPoint(c10::intrusive_ptr<c10d::Work> inner, c10d::OpType type,
                                       std::function<void()> copy_back)
    : c10d::Work(-1, type), inner_(std::move(inner)), copy_back_(std::move(copy_back)) {}

bool StagedPointToPoint::wait(std::chrono::milliseconds timeout) {
  std::exception_ptr error;
  bool arrived = false;
  try {
    arrived = inner_->wait(timeout);
    if (arrived && copy_back_) std::exchange(copy_back_, nullptr)();
  } catch (...) {
    error = std::current_exception();
  }
  finishAndThrow(error);
  return arrived;
}

CommunicationHookScope::CommunicationHookScope(bool on) : before_(in_communication_hook) {
  in_communication_hook = before_ || on;
}

CommunicationHookScope::~CommunicationHookScope() { in_communication_hook = before_; }

bool CommunicationHookScope::active() { return in_communication_hook; }

struct WorkQueue::Shared {
  struct Entry {
    c10::intrusive_ptr<QueuedWork> work;
    std::function<void()> failed;
  };
  void loop();
  // Runs the posted jobs one after another; `lock` holds `mutex`.
  void run_posted(std::unique_lock<std::mutex>& lock);

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::deque<Entry> entries;
  bool running = false;
  bool stopping = false;
};

WorkQueue::WorkQueue() : shared_(std::make_shared<Shared>()), owner_(::getpid()) {}

void WorkQueue::post(c10::intrusive_ptr<QueuedWork> work, std::function<void()> failed) {
  if (worker_of == shared_.get()) {
    work->execute(failed);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    TORCH_CHECK(!shared_->stopping, "collab: this process group has been shut down [ddp.shut-down]");
    shared_->entries.push_back({std::move(work), std::move(failed)});
    if (!worker_.joinable()) worker_ = std::thread([shared = shared_] { shared->loop(); });
  }
  shared_->changed.notify_one();
}

void WorkQueue::stop() {
  if (::getpid() != owner_) {
    if (worker_.joinable()) worker_.detach();  // the parent's thread; the mutex may stay locked for ever
    return;
  }
  const std::shared_ptr<Shared> shared = shared_;
  std::thread worker;
  {
    const std::lock_guard<std::mutex> lock(shared->mutex);
    shared->stopping = true;
    worker.swap(worker_);
  }
  shared->changed.notify_one();
  if (!worker.joinable()) return;
  if (worker_of != shared.get()) return worker.join();
  // A callback released the last owner. Callers may wait for posted jobs, so these are finished first.
  worker.detach();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->run_posted(lock);
}

bool WorkQueue::idle() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->entries.empty() && !shared_->running;
}

void WorkQueue::Shared::loop() {
  worker_of = this;
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping || !entries.empty()) {
    running = true;
    run_posted(lock);
    running = false;
    changed.wait(lock, [this] { return stopping || !entries.empty(); });
  }
}

void WorkQueue::Shared::run_posted(std::unique_lock<std::mutex>& lock) {
  while (!entries.empty()) {
    Entry entry = std::move(entries.front());
    entries.pop_front();
    lock.unlock();
    entry.work->execute(entry.failed);
    entry = {};
    lock.lock();
  }
}

}  // namespace collab::torch_adapter
