#include "core/runtime/termination.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>

#include "core/base/log.h"

namespace collab {
namespace {

std::atomic<bool> requested{false};
std::atomic<pid_t> owner{0};
std::atomic<std::chrono::milliseconds::rep> limit_ms{0};
sem_t arrived;

static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free,
              "a signal handler may use nothing that locks");

void restore_default() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGTERM, &action, nullptr);
}

// Only what is safe in a signal handler.
void on_signal(int) {
  const int saved = errno;
  const bool again = requested.exchange(true);
  if (again || getpid() != owner.load()) {
    restore_default();
    kill(getpid(), SIGTERM);  // delivered when this handler returns
  } else {
    sem_post(&arrived);
  }
  errno = saved;
}

void end_after_the_limit() {
  while (sem_wait(&arrived) != 0) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(limit_ms.load()));
  carry_out_termination();
}

bool install() {
  struct sigaction before {};
  if (sigaction(SIGTERM, nullptr, &before) != 0) return false;
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return false;
  if (sem_init(&arrived, 0, 0) != 0) return false;
  owner = getpid();
  std::thread(end_after_the_limit).detach();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  return sigaction(SIGTERM, &action, nullptr) == 0;
}

}  // namespace

bool watch_for_termination(std::chrono::milliseconds limit) {
  static std::mutex mutex;
  static bool watching = false;
  const std::lock_guard lock(mutex);
  limit_ms = limit.count();
  if (!watching) watching = install();
  return watching;
}

bool termination_requested() { return requested.load(); }

void carry_out_termination() {
  close_log_queue(std::chrono::seconds(1));
  restore_default();
  kill(getpid(), SIGTERM);
  // The signal may be taken by another thread, or be blocked here.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  _exit(128 + SIGTERM);
}

}  // namespace collab
