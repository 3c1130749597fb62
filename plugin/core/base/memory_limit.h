// How much memory this process may use: the machine's, or less in a container or another cgroup.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace collab {

// In bytes. `root`: the folder with /proc and /sys, for tests.
[[nodiscard]] std::uint64_t memory_limit(const std::string& root = {});

[[nodiscard]] std::uint64_t swap_bytes();  // the machine's swap space

// How much memory strangers together may make one part of the process hold. It is `most`, or an eighth of `limit` if
// that is less, but at least `least`. So several such bounds do not fill a small container.
[[nodiscard]] std::size_t share_of_memory(std::uint64_t limit, std::size_t least, std::size_t most);

}  // namespace collab
