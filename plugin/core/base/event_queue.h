// Events on their way to the one thread that owns some state: many producers, one consumer, first in first out.
//
// Unbounded on purpose: producers are transport handlers and callers, which must not block. The transports' windows
// and the senders' bound what can be under way to one consumer.
// Threads: every method from any thread. Ownership: owns the events it holds.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "collab/clock.h"

namespace collab {

template <typename T>
class EventQueue {
 public:
  // False when the queue is closed; the event is dropped.
  bool push(T event) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      events_.push_back(std::move(event));
    }
    arrived_.notify_one();
    return true;
  }

  // The oldest event; nothing when the deadline (of SteadyClock) has passed, or the queue is closed and drained.
  std::optional<T> pop_until(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return closed_ || !events_.empty(); };
    if (deadline == kNever) {
      arrived_.wait(lock, ready);
    } else {
      arrived_.wait_until(lock, std::chrono::steady_clock::time_point(deadline.time_since_epoch()), ready);
    }
    if (events_.empty()) return std::nullopt;
    std::optional<T> event(std::move(events_.front()));
    events_.pop_front();
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

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<T> events_;
  bool closed_ = false;
};

}  // namespace collab
