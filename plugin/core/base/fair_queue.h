// Events on their way to the one thread that owns some state: many producers, one consumer. Each source has a queue of
// its own, first in first out, and they take turns: who sends much waits for itself.
//
// Unbounded on purpose: producers are transport handlers and callers, which must not block. What one link can have
// waiting here its transport bounds. Threads: every method from any thread. Ownership: owns the events it holds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "collab/clock.h"

namespace collab {

template <typename T>
class FairQueue {
 public:
  // False when the queue is closed; the event is dropped.
  bool push(std::uint64_t source, T event) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      std::deque<T>& events = waiting_[source];
      if (events.empty()) turns_.push_back(source);
      events.push_back(std::move(event));
    }
    arrived_.notify_one();
    return true;
  }

  // The oldest event of the source whose turn it is; nothing when the deadline (of SteadyClock) has passed, or the
  // queue is closed and drained.
  std::optional<T> pop_until(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return closed_ || !turns_.empty(); };
    if (deadline == kNever) {
      arrived_.wait(lock, ready);
    } else {
      arrived_.wait_until(lock, std::chrono::steady_clock::time_point(deadline.time_since_epoch()), ready);
    }
    if (turns_.empty()) return std::nullopt;
    const auto turn = waiting_.find(turns_.front());
    turns_.pop_front();
    std::optional<T> event(std::move(turn->second.front()));
    turn->second.pop_front();
    if (turn->second.empty()) {
      waiting_.erase(turn);
    } else {
      turns_.push_back(turn->first);
    }
    return event;
  }

  // Events already pushed can still be popped; the consumer wakes.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

  [[nodiscard]] bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::uint64_t, std::deque<T>> waiting_;  // none is empty
  std::deque<std::uint64_t> turns_;                 // each source of those once
  bool closed_ = false;
};

}  // namespace collab
