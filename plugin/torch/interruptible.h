// Blocking calls of the core that Ctrl-C can interrupt: they run on a separate thread while the caller waits in short
// intervals and lets Python handle signals in between.
//
// An interrupted call continues in the background until its own time limit; the next call queues up behind it.
// Threads: call() from threads that hold the interpreter's lock. Ownership: the thread keeps the called object alive. A
// thread that is still busy at destruction is detached.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collab/status.h"

namespace collab::torch_adapter {

class Interruptible {
 public:
  Interruptible() : state_(std::make_shared<State>()) {}
  ~Interruptible() {
    if (!thread_.joinable()) return;
    bool busy = false;
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->stopping = true;
      busy = state_->open > 0;
    }
    state_->changed.notify_all();
    if (busy) {
      thread_.detach();
      return;
    }
    const pybind11::gil_scoped_release released;  // destroying what a call holds may need the lock
    thread_.join();
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // False while a call runs or is queued.
  [[nodiscard]] bool idle() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->open == 0;
  }

  // Runs `body` on the thread and returns its value. `body` returns a Status or a Result and owns all that it needs.
  // Meanwhile the caller runs `meanwhile` from time to time.
  // Throws pybind11::error_already_set if a signal handler raised, or what `meanwhile` throws.
  template <typename Body, typename Meanwhile>
  auto call(Body body, const Meanwhile& meanwhile) -> decltype(body()) {
    using Value = decltype(body());
    struct Answer {
      std::optional<Value> value;
    };
    auto answer = std::make_shared<Answer>();
    auto state = state_;
    auto task = [answer, state, body = std::move(body)]() mutable {
      std::optional<Value> value;
      try {
        value.emplace(body());
      } catch (const std::exception& e) {
        value.emplace(internal_error(std::string("unexpected exception: ") + e.what()));
      }
      const std::lock_guard<std::mutex> lock(state->mutex);
      answer->value = std::move(value);
      --state->open;
    };
    post(std::move(task));
    while (true) {
      {
        const pybind11::gil_scoped_release released;
        std::unique_lock<std::mutex> lock(state->mutex);
        const bool done =
            state->changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return answer->value.has_value(); });
        if (done) return std::move(*answer->value);
      }
      if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
      meanwhile();
    }
  }
  template <typename Body>
  auto call(Body body) -> decltype(body()) {
    return call(std::move(body), [] {});
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    std::size_t open = 0;  // calls that have not ended
    bool stopping = false;
  };

  void post(std::function<void()> task) {
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->tasks.push_back(std::move(task));
      ++state_->open;
    }
    if (!thread_.joinable()) thread_ = std::thread([state = state_] { loop(*state); });
    state_->changed.notify_all();
  }

  static void loop(State& state) {
    std::unique_lock<std::mutex> lock(state.mutex);
    while (true) {
      state.changed.wait(lock, [&] { return state.stopping || !state.tasks.empty(); });
      if (state.tasks.empty()) return;
      auto task = std::move(state.tasks.front());
      state.tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      state.changed.notify_all();
    }
  }

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace collab::torch_adapter
