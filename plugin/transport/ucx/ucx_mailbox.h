// Commands for the progress thread, and the eventfd that wakes it.
//
// Threads: post and close from any thread; the rest from the progress thread.
// Ownership: shared by the engine and by look-ups that may end after it; owns an eventfd.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace collab {

class UcxMailbox {
 public:
  using Command = std::function<void()>;

  UcxMailbox() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~UcxMailbox() {
    if (fd_ >= 0) ::close(fd_);
  }
  UcxMailbox(const UcxMailbox&) = delete;
  UcxMailbox& operator=(const UcxMailbox&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

  // False: the engine is gone, and the command is dropped.
  bool post(Command command) {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      commands_.push_back(std::move(command));
      wake = std::exchange(asleep_, false);
    }
    if (wake) {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof(one));
    }
    return true;
  }

  // Moves the commands to `into`, in order. Clears `into` first but keeps its memory.
  void take(std::vector<Command>& into) {
    into.clear();
    const std::lock_guard lock(mutex_);
    into.swap(commands_);
  }

  // False: a command is waiting. Otherwise the next post writes to fd().
  [[nodiscard]] bool fall_asleep() {
    const std::lock_guard lock(mutex_);
    asleep_ = commands_.empty();
    return asleep_;
  }

  void wake_up() {
    {
      const std::lock_guard lock(mutex_);
      asleep_ = false;
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(fd_, &count, sizeof(count));
  }

  void close() {
    std::vector<Command> dropped;
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(commands_);
  }

 private:
  const int fd_;
  std::mutex mutex_;
  std::vector<Command> commands_;
  bool asleep_ = false;
  bool closed_ = false;
};

}  // namespace collab
