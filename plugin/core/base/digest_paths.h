// XXH3 compiled once per instruction set; every path gives the same bits, the widest one this CPU has is used.
//
// The copies live in sources of their own, where xxhash's functions are static and nothing else is inline: a copy that
// the linker merges with another could be one that does not run on every CPU.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collab {

struct DigestPath {
  const char* name;
  std::uint64_t (*hash64)(const void* bytes, std::size_t size);
  void (*hash128)(const void* bytes, std::size_t size, std::uint64_t* low, std::uint64_t* high);
};

extern const DigestPath kDigestBaseline;
#if defined(__x86_64__)
extern const DigestPath kDigestAvx2;
#endif

// The paths this CPU can run, the best one last.
struct DigestPaths {
  const DigestPath* paths[2];
  std::size_t count;
};
[[nodiscard]] DigestPaths digest_paths();

}  // namespace collab
