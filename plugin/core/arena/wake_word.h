// Waiting between processes on a 32-bit word in shared memory.
//
// The waker changes the word and wakes. The waiter reads the word, checks its condition, and sleeps only while the word
// is unchanged, so no wake-up is lost. Uses a Linux futex; elsewhere it polls every millisecond or faster.
// Threads: any. Ownership: the word is the caller's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace collab::arena {

using WakeWord = std::atomic<std::uint32_t>;
static_assert(sizeof(WakeWord) == 4 && WakeWord::is_always_lock_free);

// Returns when woken, when the word differs from `seen`, or after `limit`; may also return spuriously.
void wait_for_change(const WakeWord& word, std::uint32_t seen, std::chrono::nanoseconds limit);
// Adds one to the word and wakes every waiter in every process.
void wake_all(WakeWord& word);

}  // namespace collab::arena
