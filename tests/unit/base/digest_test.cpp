#include "core/base/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/digest_paths.h"
#include "core/base/prng.h"

namespace collab {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The reference values of the empty input, and what a C program over xxhash.h 0.8.1 gives.
TEST(Digest, IsXxh3) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2U);
  EXPECT_EQ(to_hex(hash128({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash64(bytes_of("collab")), 0x2a3714ec7d5f4572U);
  EXPECT_EQ(to_hex(hash128(bytes_of("collab"))), "e0fdb41028cd5b5abcca01e79567421e");
}

TEST(Digest, IsTheSameOnEveryPath) {
  std::vector<std::byte> bytes(5000);
  Prng prng(2);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  const DigestPaths found = digest_paths();
  EXPECT_STREQ(found.paths[0]->name, "baseline");
  for (std::size_t i = 0; i < found.count; ++i) {
    const DigestPath& path = *found.paths[i];
    // Every length up to the block of XXH3's long form and some beyond, at an odd address too.
    for (std::size_t size = 0; size + 1 <= bytes.size(); size += size < 1100 ? 1 : 97) {
      const std::span<const std::byte> part(bytes.data() + size % 2, size);
      EXPECT_EQ(path.hash64(part.data(), size), found.paths[0]->hash64(part.data(), size)) << path.name << ' ' << size;
      Digest digest;
      path.hash128(part.data(), size, &digest.lo, &digest.hi);
      EXPECT_EQ(digest, hash128(part)) << path.name << ' ' << size;
    }
  }
}

TEST(Digest, IsTheChainOfTheVectorsChunks) {
  std::vector<float> vector(2 * kDigestChunkElements + 17);
  Prng prng(1);
  for (float& x : vector) x = static_cast<float>(prng.uniform());
  const std::span<const float> all(vector);

  DigestChain chain;
  chain.add(hash128(as_bytes_of(all.subspan(0, kDigestChunkElements))));
  chain.add(hash128(as_bytes_of(all.subspan(kDigestChunkElements, kDigestChunkElements))));
  chain.add(hash128(as_bytes_of(all.subspan(2 * kDigestChunkElements))));
  EXPECT_EQ(digest_of_vector(all), chain.finish());
}

TEST(Digest, SeesEveryBit) {
  std::vector<float> vector(100, 0.0F);
  std::set<Digest> seen{digest_of_vector(vector)};
  for (float& x : vector) {
    x = -0.0F;  // one bit, equal as a number
    EXPECT_TRUE(seen.insert(digest_of_vector(vector)).second);
    x = 0.0F;
  }
  EXPECT_TRUE(seen.insert(digest_of_vector(std::span<const float>(vector).first(99))).second);
}

TEST(Digest, DistinguishesAnchorFromOuterState) {
  const Digest a{1, 2};
  const Digest b{3, 4};
  EXPECT_NE(digest_of_state(a, b), digest_of_state(b, a));
  EXPECT_NE(digest_of_state(a, Digest{}), a);
}

TEST(DigestChain, CanBeReadBetweenParts) {
  DigestChain chain;
  chain.add({1, 2});
  const Digest after_one = chain.finish();
  EXPECT_EQ(chain.finish(), after_one);
  chain.add({3, 4});
  EXPECT_NE(chain.finish(), after_one);
}

}  // namespace
}  // namespace collab
