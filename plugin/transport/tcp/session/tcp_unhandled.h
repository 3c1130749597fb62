// Counts messages that were handed to the process and are not handled yet. A link that sends faster than the process
// handles is not read for a while.
//
// Threads: hold() and check_full() on the IO thread. Messages are released on any thread. Ownership: a link shares it
// with its messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace collab::tcp {

// The limits. kMaxUnhandledBytes is per link. A link may exceed it by one message and by those that the last read of
// each connection completes. Above kMaxUnhandledInAll, which counts all links of a process, no link gets more than its
// share, and a link without a handled message is not read. Above twice as much, no link is read. Ended links have a
// limit too: above it, a link without a handled message is not read. Otherwise a peer could open one link after another
// and leave a message in each, without a limit.
inline constexpr std::size_t kMaxUnhandledBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxUnhandledInAll = std::size_t{256} << 20;

struct UnhandledBytes {
  std::atomic<std::size_t> held{0};
  std::atomic<std::size_t> links{0};
  std::atomic<std::size_t> of_ended{0};
  std::size_t in_all = kMaxUnhandledInAll;  // set before the first link
};

class Unhandled : public std::enable_shared_from_this<Unhandled> {
 public:
  // `room` is called when a full link has room again, on the thread that made the room.
  Unhandled(std::shared_ptr<UnhandledBytes> all, std::function<void()> room)
      : all_(std::move(all)), room_(std::move(room)) {
    ++all_->links;
  }
  ~Unhandled() { --all_->links; }
  Unhandled(const Unhandled&) = delete;
  Unhandled& operator=(const Unhandled&) = delete;

  // A message of this size counts as unhandled until the last copy of the returned pointer is gone.
  [[nodiscard]] std::shared_ptr<const void> hold(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ += bytes;
    all_->held += bytes;
    return {this, [self = shared_from_this(), bytes](const void*) { self->release(bytes); }};
  }
  // The link has ended. Its held messages may live on.
  void end() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(ended_, true)) all_->of_ended += held_;
  }

  // Whether any message of the link was handled.
  [[nodiscard]] bool any_handled() const { return any_handled_; }
  [[nodiscard]] bool check_full() {
    if (!is_above(kMaxUnhandledBytes)) return false;
    waits_ = true;
    if (is_above(kMaxUnhandledBytes)) return true;
    return !waits_.exchange(false);  // room was made meanwhile, and room_() was called
  }

 private:
  [[nodiscard]] bool is_above(std::size_t most) const {
    const std::size_t held = held_, in_all = all_->held;
    const bool crowded = in_all > all_->in_all;
    return held > most || (crowded && held > all_->in_all / all_->links) || in_all > 2 * all_->in_all ||
           (!any_handled_ && (crowded || all_->of_ended > all_->in_all / 4));
  }

  void release(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      held_ -= bytes;
      all_->held -= bytes;
      if (ended_) all_->of_ended -= bytes;
    }
    any_handled_ = true;
    if (!is_above(kMaxUnhandledBytes / 2) && waits_.exchange(false)) room_();
  }

  const std::shared_ptr<UnhandledBytes> all_;
  const std::function<void()> room_;
  std::atomic<std::size_t> held_{0};
  std::atomic<bool> waits_{false};
  std::atomic<bool> any_handled_{false};
  std::mutex mutex_;
  bool ended_ = false;
};

}  // namespace collab::tcp
