// XXH3 compiled once per instruction set. Every path gives the same bits; the widest path of this CPU is used.
//
// Each copy is in a source of its own, where xxhash's functions are static and nothing else is inline. Otherwise the
// linker could merge copies, and keep one that does not run on every CPU.
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
