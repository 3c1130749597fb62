// Names the process that owns an arena, even after its end: a pid alone may soon be another process's.
//
// Threads: pure functions on /proc. Ownership: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace collab::arena {

// Stored in shared memory: fixed size, no pointers.
struct ProcessIdentity {
  std::uint64_t start_ticks = 0;    // since boot, /proc/PID/stat field 22; 0: not known
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; 0: not known
  std::uint32_t pid = 0;
  std::uint32_t holds_file = 0;    // 1: the owner holds the file's second lock while it lives (BackingFile::hold)
  std::array<char, 40> boot_id{};  // /proc/sys/kernel/random/boot_id, zero-padded
  bool operator==(const ProcessIdentity&) const = default;
};
static_assert(std::is_trivially_copyable_v<ProcessIdentity> && sizeof(ProcessIdentity) == 64);

enum class Liveness : std::uint8_t {
  kAlive,
  kGone,        // no such process, a zombie, or the pid belongs to a later process
  kOtherBoot,   // the machine has been restarted since
  kCannotTell,  // it belongs to another pid namespace (a container), where pids differ
};

[[nodiscard]] ProcessIdentity this_process();
[[nodiscard]] Liveness liveness_of(const ProcessIdentity& process);

}  // namespace collab::arena
