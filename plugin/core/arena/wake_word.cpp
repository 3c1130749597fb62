#include "core/arena/wake_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace collab::arena {
namespace {

timespec to_timespec(std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  timespec out{};
  out.tv_sec = static_cast<time_t>(seconds.count());
  out.tv_nsec = static_cast<long>((time - seconds).count());
  return out;
}

}  // namespace

void wait_for_change(const WakeWord& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit <= std::chrono::nanoseconds::zero() || word.load(std::memory_order_acquire) != seen) return;
  // Without FUTEX_PRIVATE_FLAG: the waker may be another process.
  const timespec timeout = to_timespec(limit);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void wake_all(WakeWord& word) {
  word.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace collab::arena
