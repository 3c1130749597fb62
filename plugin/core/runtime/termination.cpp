#include "core/runtime/termination.h"

#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/log.h"

namespace collab {
namespace {

using Milliseconds = std::chrono::milliseconds::rep;

std::atomic<Milliseconds> requested_at{0};  // 0: not yet
std::atomic<int> requested_by{SIGTERM};
std::atomic<pid_t> owner{0};
std::atomic<pid_t> served{0};  // the parent that this process serves
std::atomic<Milliseconds> limit_ms{0};
std::atomic<Milliseconds> same_request_ms{0};
sem_t arrived;

static_assert(std::atomic<Milliseconds>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free,
              "a signal handler may use nothing that locks");

// Never destroyed, because the thread that calls the hooks may outlive main().
struct TerminationHooks {
  std::mutex mutex;
  std::map<const TerminationHook*, std::function<void()>> calls;
};
TerminationHooks& termination_hooks() {
  static auto* const all = new TerminationHooks;
  return *all;
}

Milliseconds monotonic_ms() {  // safe in a signal handler
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::max<Milliseconds>(1, static_cast<Milliseconds>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000);
}

void end_by(int number) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
  kill(getpid(), number);  // in a handler, the signal is delivered when the handler returns
}

// Only what is safe in a signal handler.
void on_signal(int number) {
  const int saved = errno;
  const Milliseconds now = monotonic_ms();
  Milliseconds first = 0;
  const bool ours = getpid() == owner.load();
  if (ours && requested_at.compare_exchange_strong(first, now)) {
    requested_by = number;
    sem_post(&arrived);
  } else if (!ours || now - first >= same_request_ms.load()) {
    end_by(number);
  }
  errno = saved;
}

void on_signal_of_child(int number, siginfo_t* info, void*) {
  const int saved = errno;
  const bool gone = getppid() != served.load();
  if (!gone && info->si_pid == served.load()) _exit(0);  // as torch does for SIGTERM
  if (gone) end_by(number);
  errno = saved;
}

[[nodiscard]] bool has_default_effect(int number) {
  struct sigaction before {};
  if (sigaction(number, nullptr, &before) != 0) return false;
  return (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
}

[[nodiscard]] bool take_over(int number) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  return sigaction(number, &action, nullptr) == 0;
}

void run_termination_hooks(std::chrono::milliseconds after) {
  std::this_thread::sleep_for(after);
  TerminationHooks& all = termination_hooks();
  const std::lock_guard lock(all.mutex);
  if (all.calls.empty()) return;
  for (const auto& [whose, call] : all.calls) call();
  carry_out_termination();
}

void end_after_the_limit() {
  while (sem_wait(&arrived) != 0) {
  }
  const std::chrono::milliseconds limit(limit_ms.load());
  // The hooks may take long, but the limit holds anyway.
  std::thread(run_termination_hooks, limit * 7 / 10).detach();
  std::this_thread::sleep_for(limit);
  carry_out_termination();
}

bool install() {
  if (!has_default_effect(SIGTERM)) return false;
  if (sem_init(&arrived, 0, 0) != 0) return false;
  owner = getpid();
  std::thread(end_after_the_limit).detach();
  if (has_default_effect(SIGHUP) && !take_over(SIGHUP)) return false;
  return take_over(SIGTERM);
}

}  // namespace

bool watch_for_termination(std::chrono::milliseconds limit, std::chrono::milliseconds same_request) {
  static std::mutex mutex;
  static bool watching = false;
  const std::lock_guard lock(mutex);
  limit_ms = limit.count();
  same_request_ms = same_request.count();
  if (!watching) watching = install();
  return watching;
}

bool termination_requested() { return requested_at.load() != 0; }

const char* termination_signal() { return requested_by.load() == SIGHUP ? "SIGHUP" : "SIGTERM"; }

void carry_out_termination() {
  close_log_queue(std::chrono::seconds(1));
  const int number = requested_by.load();
  end_by(number);
  // Another thread may take the signal, or it may be blocked here.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  _exit(128 + number);
}

void end_by_parent_only() {
  served = getppid();
  struct sigaction action {};
  action.sa_sigaction = on_signal_of_child;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (const int number : {SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

TerminationHook::TerminationHook(std::function<void()> call) {
  const std::lock_guard lock(termination_hooks().mutex);
  termination_hooks().calls.emplace(this, std::move(call));
}

TerminationHook::~TerminationHook() {
  const std::lock_guard lock(termination_hooks().mutex);
  termination_hooks().calls.erase(this);
}

}  // namespace collab
