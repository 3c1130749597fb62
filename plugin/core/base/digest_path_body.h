// The body of each digest_*.cpp, which names its path and is compiled for its instruction set. See digest_paths.h.
// Threads: pure functions.
#pragma once

#ifndef COLLAB_DIGEST_PATH
#error "include this from a digest_*.cpp that names its path"
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/digest_paths.h"

// Included once by each source of a path. NOLINTBEGIN(misc-definitions-in-headers)
namespace collab {
namespace {

std::uint64_t path_hash64(const void* bytes, std::size_t size) { return XXH3_64bits(bytes, size); }

void path_hash128(const void* bytes, std::size_t size, std::uint64_t* low, std::uint64_t* high) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, size);
  *low = hash.low64;
  *high = hash.high64;
}

}  // namespace

const DigestPath COLLAB_DIGEST_PATH = {COLLAB_DIGEST_PATH_NAME, path_hash64, path_hash128};

}  // namespace collab
// NOLINTEND(misc-definitions-in-headers)
