// bf16: the upper half of binary32, rounded to nearest even; 8 bits of precision over the whole range of float32.
//
// Payload of n elements: 2 n bytes, element i as a little-endian 16-bit word at byte 2 i:
//
//   bit 15      sign
//   bits 14..7  exponent, biased by 127, as in binary32
//   bits 6..0   upper 7 bits of the fraction
//
// What would round to infinity becomes the largest finite value (0x7F7F). Exponent field 255 is never written and
// refused. Denormals and signed zeros are kept.
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

struct Bf16 {
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kValueBits = 16;
  static constexpr std::size_t kScaleBytes = 0;
  static constexpr std::uint32_t kLargestFinite = 0x7F7F;

  template <typename In>
  static bool encode(In in, std::size_t, std::byte* values, std::byte*) {
    auto* out = reinterpret_cast<Unaligned16*>(values);
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint32_t bits = bits_of(in[i]);
      const std::uint32_t magnitude = bits & kMagnitude;
      largest = larger(largest, magnitude);
      // Adding just under half a unit, and one more when the kept part is odd, rounds to nearest even.
      const std::uint32_t rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16;
      out[i] = static_cast<std::uint16_t>(smaller(rounded, kLargestFinite) | ((bits >> 16) & 0x8000));
    }
    return largest < kInfinity;
  }

  static bool valid(const std::byte* values, const std::byte*) {
    const auto* in = reinterpret_cast<const Unaligned16*>(values);
    std::uint16_t largest = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const auto magnitude = static_cast<std::uint16_t>(in[i] & 0x7FFF);
      largest = largest > magnitude ? largest : magnitude;
    }
    return largest <= kLargestFinite;
  }

  template <typename Out>
  static void decode(const std::byte* values, const std::byte*, Out out) {
    const auto* in = reinterpret_cast<const Unaligned16*>(values);
    for (std::size_t i = 0; i < kBlock; ++i) out.put(i, float_of(std::uint32_t{in[i]} << 16));
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
