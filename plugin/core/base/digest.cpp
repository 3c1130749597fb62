#include "core/base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>

#include "collab/status.h"
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

namespace {

// Kept out of line: inlined with a length known at compile time, g++ 12 warns of reads XXH3 never makes.
[[gnu::noinline]] void absorb(XXH3_state_t& state, const void* bytes, std::size_t size) {
  COLLAB_CHECK(XXH3_128bits_update(&state, bytes, size) == XXH_OK, "XXH3 refused its input");
}

}  // namespace

struct DigestChain::State {
  XXH3_state_t xxh;
};

DigestChain::DigestChain() : state_(std::make_unique<State>()) {
  COLLAB_CHECK(XXH3_128bits_reset(&state_->xxh) == XXH_OK, "XXH3 refused to start");
}
DigestChain::~DigestChain() = default;
DigestChain::DigestChain(DigestChain&&) noexcept = default;
DigestChain& DigestChain::operator=(DigestChain&&) noexcept = default;

void DigestChain::add(const Digest& part) {
  const std::array<std::uint64_t, 2> words{part.lo, part.hi};
  absorb(state_->xxh, words.data(), sizeof(words));
}

Digest DigestChain::finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.low64, hash.high64};
}

Digest digest_of_vector(std::span<const float> elements, std::uint64_t chunk_elements) {
  DigestChain chain;
  while (!elements.empty()) {
    const std::size_t count = std::min<std::size_t>(elements.size(), chunk_elements);
    chain.add(hash128(as_bytes_of(elements.first(count))));
    elements = elements.subspan(count);
  }
  return chain.finish();
}

Digest digest_of_state(const Digest& anchor, const Digest& outer) {
  DigestChain chain;
  chain.add(anchor);
  chain.add(outer);
  return chain.finish();
}

}  // namespace collab
