// The project's one hash: XXH3, 64 and 128 bits, the same bits on every CPU.
//
// Threads: pure functions; a DigestChain belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collab/types.h"

namespace collab {

[[nodiscard]] std::uint64_t hash64(std::span<const std::byte> bytes);
[[nodiscard]] Digest hash128(std::span<const std::byte> bytes);
[[nodiscard]] inline std::span<const std::byte> as_bytes_of(std::span<const float> floats) {
  return std::as_bytes(floats);
}

// The digest of a sequence of parts: hash128 over the parts' own digests in order. So each part can be hashed while it
// is in the cache. The vector's digest uses chunks of kDigestChunkElements.
class DigestChain {
 public:
  void add(const Digest& part) { parts_.push_back(part); }
  [[nodiscard]] Digest finish() const { return hash128(std::as_bytes(std::span(parts_))); }

 private:
  std::vector<Digest> parts_;
};

inline constexpr std::uint64_t kDigestChunkElements = std::uint64_t{64} * 1024;

// DigestChain over the vector in chunks of `chunk_elements`. `passing` is called after each chunk.
[[nodiscard]] Digest digest_of_vector(std::span<const float> elements,
                                      std::uint64_t chunk_elements = kDigestChunkElements,
                                      const std::function<void()>& passing = {});
// The digest of anchor and outer state: a chain of both vectors' digests (outer may be empty).
[[nodiscard]] Digest digest_of_state(const Digest& anchor, const Digest& outer);

}  // namespace collab
