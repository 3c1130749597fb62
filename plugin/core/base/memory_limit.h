// How much memory this process may have: the machine's, or less in a container or another group of the system's.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace collab {

// In bytes. `root`: where /proc and /sys lie, for tests.
[[nodiscard]] std::uint64_t memory_limit(const std::string& root = {});

}  // namespace collab
