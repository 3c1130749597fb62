// A queue of events for the one thread that owns some state: many producers, one consumer. Each source has its own
// FIFO, and these take turns, so a source that sends much delays only itself. Large events take long to handle, so one
// large event gets a turn after eight small ones. So large messages of many links do not hold up another link's small
// message.
//
// Unbounded on purpose: producers are transport handlers and callers, which must not block. The transport bounds what
// one link can have waiting here. Threads: every method from any thread. Ownership: owns the events it holds.
#pragma once

#include <condition_variable>
#include <cstddef>
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
  static constexpr std::size_t kLarge = std::size_t{64} << 10;

  // `size`: of the event, in bytes. False if the queue is closed; the event is dropped.
  bool push(std::uint64_t source, T event, std::size_t size = 0) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      Events& events = waiting_[source];
      events.emplace_back(std::move(event), size > kLarge);
      if (events.size() == 1) turns_of(events).push_back(source);
    }
    arrived_.notify_one();
    return true;
  }

  // The oldest event of the source whose turn it is; nothing when the deadline (of SteadyClock) has passed, or the
  // queue is closed and drained.
  std::optional<T> pop_until(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return closed_ || !waiting_.empty(); };
    if (deadline == kNever) {
      arrived_.wait(lock, ready);
    } else {
      arrived_.wait_until(lock, std::chrono::steady_clock::time_point(deadline.time_since_epoch()), ready);
    }
    if (waiting_.empty()) return std::nullopt;
    const bool large = small_.empty() || (!large_.empty() && in_a_row_ == kSmallInARow);
    in_a_row_ = large || large_.empty() ? 0 : in_a_row_ + 1;
    std::deque<std::uint64_t>& turns = large ? large_ : small_;
    const auto turn = waiting_.find(turns.front());
    turns.pop_front();
    Events& events = turn->second;
    std::optional<T> event(std::move(events.front().first));
    events.pop_front();
    if (events.empty()) {
      waiting_.erase(turn);
    } else {
      turns_of(events).push_back(turn->first);
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
  static constexpr int kSmallInARow = 8;
  using Events = std::deque<std::pair<T, bool>>;  // (event, whether it is large)
  std::deque<std::uint64_t>& turns_of(const Events& events) { return events.front().second ? large_ : small_; }

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::uint64_t, Events> waiting_;  // by source; no deque is empty
  // Each source of waiting_ once, by the size of its first event.
  std::deque<std::uint64_t> small_, large_;
  int in_a_row_ = 0;  // small events taken in a row while a large one waits
  bool closed_ = false;
};

}  // namespace collab
