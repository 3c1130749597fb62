#include "core/base/digest.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/base/digest_paths.h"

namespace collab {

static_assert(std::endian::native == std::endian::little,
              "digests are taken over the memory of float32 vectors, which sites share as little-endian bytes");

DigestPaths digest_paths() {
  DigestPaths found{{&kDigestBaseline}, 1};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) found.paths[found.count++] = &kDigestAvx2;
#endif
  return found;
}

namespace {

const DigestPath& best_path() {
  static const DigestPath& best = []() -> const DigestPath& {
    const DigestPaths found = digest_paths();
    return *found.paths[found.count - 1];
  }();
  return best;
}

}  // namespace

std::uint64_t hash64(std::span<const std::byte> bytes) { return best_path().hash64(bytes.data(), bytes.size()); }

Digest hash128(std::span<const std::byte> bytes) {
  Digest digest;
  best_path().hash128(bytes.data(), bytes.size(), &digest.lo, &digest.hi);
  return digest;
}

Digest digest_of_vector(std::span<const float> elements, std::uint64_t chunk_elements,
                        const std::function<void()>& passing) {
  DigestChain chain;
  while (!elements.empty()) {
    const std::size_t count = std::min<std::size_t>(elements.size(), chunk_elements);
    chain.add(hash128(as_bytes_of(elements.first(count))));
    elements = elements.subspan(count);
    if (passing) passing();
  }
  return chain.finish();
}

Digest digest_of_state(const Digest& anchor, const Digest& outer) {
  const std::array both{anchor, outer};
  return hash128(std::as_bytes(std::span(both)));
}

}  // namespace collab
