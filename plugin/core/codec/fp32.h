// fp32: the elements unchanged; bit-exact, signed zeros and denormals included.
//
// Payload of n elements: 4 n bytes, element i as IEEE 754 binary32, little-endian, at byte 4 i. Exponent field 255
// (NaN, infinity) is never written and refused.
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

struct Fp32 {
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kValueBits = 32;
  static constexpr std::size_t kScaleBytes = 0;

  template <typename In>
  static bool encode(In in, std::size_t, std::byte* values, std::byte*) {
    auto* out = reinterpret_cast<UnalignedFloat*>(values);
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const float value = in[i];
      largest = larger(largest, bits_of(value) & kMagnitude);
      out[i] = value;
    }
    return largest < kInfinity;
  }

  static bool valid(const std::byte* values, const std::byte*) {
    const auto* in = reinterpret_cast<const UnalignedFloat*>(values);
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < kBlock; ++i) largest = larger(largest, bits_of(in[i]) & kMagnitude);
    return largest < kInfinity;
  }

  template <typename Out>
  static void decode(const std::byte* values, const std::byte*, Out out) {
    const auto* in = reinterpret_cast<const UnalignedFloat*>(values);
    for (std::size_t i = 0; i < kBlock; ++i) out.put(i, in[i]);
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
