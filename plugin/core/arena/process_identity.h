// Which process owns an arena, in a form that outlives the process: a pid alone is soon another process's.
//
// Threads: pure functions on /proc. Ownership: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace collab::arena {

// Lies in shared memory: fixed size, no pointers.
struct ProcessIdentity {
  std::uint64_t start_ticks = 0;    // since boot, /proc/PID/stat field 22; 0: not known
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; 0: not known
  std::uint32_t pid = 0;
  std::uint32_t holds_file = 0;    // of an arena's owner: 1: it holds the file while it lives (BackingFile::hold)
  std::array<char, 40> boot_id{};  // /proc/sys/kernel/random/boot_id, zero-padded
  bool operator==(const ProcessIdentity&) const = default;
};
static_assert(std::is_trivially_copyable_v<ProcessIdentity> && sizeof(ProcessIdentity) == 64);

enum class Liveness : std::uint8_t {
  kAlive,
  kGone,        // no such process, a zombie, or the pid belongs to a later process
  kOtherBoot,   // the machine has been restarted since
  kCannotTell,  // it lives in another pid namespace (a container): pids mean nothing here
};

[[nodiscard]] ProcessIdentity this_process();
[[nodiscard]] Liveness liveness_of(const ProcessIdentity& process);

}  // namespace collab::arena
