// Numbers that nobody can predict and no two processes share: names of memories, hubs and files. For numbers that must
// be reproducible use a Prng (prng.h).
//
// Threads: pure, but for the system's source. Ownership: none.
#pragma once

#include <cstdint>
#include <random>

namespace collab {

[[nodiscard]] inline std::uint64_t random_bits() {
  std::random_device source;
  const std::uint64_t high = source();
  return (high << 32) | source();
}

}  // namespace collab
