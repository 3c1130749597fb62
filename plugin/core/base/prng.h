// A seeded random source that gives the same numbers on every machine: xoshiro256** (Blackman and Vigna, 2018),
// seeded by SplitMix64. For simulations, back-off and test data; never for secrets.
//
// std distributions differ between libraries, so the few that we need are members here.
// Threads: one owner at a time.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace collab {

class SplitMix64 {
 public:
  constexpr explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E37'79B9'7F4A'7C15);
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EB;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

class Prng {
 public:
  constexpr explicit Prng(std::uint64_t seed) {
    SplitMix64 expand(seed);
    for (std::uint64_t& word : state_) word = expand.next();
  }

  constexpr std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // [0, bound), without bias; bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t unfair = (0 - bound) % bound;  // 2^64 mod bound
    std::uint64_t drawn = next();
    while (drawn < unfair) drawn = next();
    return drawn % bound;
  }

  // [0, 1), 53 bits.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  constexpr bool chance(double probability) { return uniform() < probability; }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace collab
