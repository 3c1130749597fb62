// How much memory this process may have: the machine's, or less in a container or another group of the system's.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace collab {

// In bytes. `root`: where /proc and /sys lie, for tests.
[[nodiscard]] std::uint64_t memory_limit(const std::string& root = {});

[[nodiscard]] std::uint64_t swap_bytes();  // that the machine has beside

// What strangers together may make one part of it hold: `most`, but an eighth of `limit` where that is less, so that
// several such bounds do not take all that a small container has; and no less than `least`.
[[nodiscard]] std::size_t share_of_memory(std::uint64_t limit, std::size_t least, std::size_t most);

}  // namespace collab
