// int8: 255 even steps per block of 256 elements; about 0.7 % relative error on normally distributed numbers.
//
// Payload of n elements, b = ceil(n / 256) blocks: n + 2 b bytes.
//
//   byte i          element i: q, a signed byte in [-127, 127]
//   byte n + 2 j    block j's scale s: a little-endian 16-bit word, the upper half of a binary32 (bf16); element = q *
//   s
//
// s = largest magnitude of the block / 127 (rounded to float32), rounded up to bf16, then brought into
// [2^-126, 0x7C010000]: below, 1/s would overflow; above, 127 s would. A block of zeros has s = 0. Two bytes per scale,
// not four, add 0.2 % to the error and keep the payload at 1.008 bytes per element. q = element * (1/s), each
// rounded to float32, then to the nearest integer, ties to even, kept within +-127. q * s has 15 significant bits, so
// it is exact in float32; a negative zero comes back as zero.
//
// Refused, because never written: q = -128; s negative, denormal, infinite, NaN or above the bound; s = 0 with q != 0;
// a block with s above 2^-126 whose largest |q| is below 126.
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

struct Int8 {
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kValueBits = 8;
  static constexpr std::size_t kScaleBytes = 2;
  static constexpr std::uint32_t kSmallestScale = 0x0080'0000;  // 2^-126
  static constexpr std::uint32_t kLargestScale = 0x7C01'0000;   // the largest bf16 s with 127 s finite

  static std::uint32_t scale_bits(std::uint32_t largest_magnitude_bits) {
    if (largest_magnitude_bits == 0) return 0;
    const std::uint32_t exact = bits_of(float_of(largest_magnitude_bits) / 127.0F);
    const std::uint32_t rounded_up = (exact + 0xFFFF) & 0xFFFF'0000;
    return smaller(larger(rounded_up, kSmallestScale), kLargestScale);
  }

  template <typename In>
  static bool encode(In in, std::size_t, std::byte* values, std::byte* scale) {
    const std::uint32_t largest = largest_magnitude<kBlock>(in);
    if (largest >= kInfinity) return false;
    const std::uint32_t s = scale_bits(largest);
    *reinterpret_cast<Unaligned16*>(scale) = static_cast<std::uint16_t>(s >> 16);
    const float inverse = s == 0 ? 0.0F : 1.0F / float_of(s);
    auto* out = reinterpret_cast<std::int8_t*>(values);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const auto steps = static_cast<std::int32_t>(bits_of(in[i] * inverse + kRounder) - bits_of(kRounder));
      const std::int32_t upper = steps < 127 ? steps : 127;
      out[i] = static_cast<std::int8_t>(upper > -127 ? upper : -127);
    }
    return true;
  }

  static bool valid(const std::byte* values, const std::byte* scale) {
    const auto* in = reinterpret_cast<const std::int8_t*>(values);
    std::uint8_t largest = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const auto magnitude = static_cast<std::uint8_t>(in[i] < 0 ? -in[i] : in[i]);
      largest = largest > magnitude ? largest : magnitude;
    }
    const std::uint32_t s = std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16;
    if (s == 0) return largest == 0;
    if (s < kSmallestScale || s > kLargestScale) return false;
    return largest <= 127 && (s == kSmallestScale || largest >= 126);
  }

  template <typename Out>
  static void decode(const std::byte* values, const std::byte* scale, Out out) {
    const float step = float_of(std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16);
    const auto* in = reinterpret_cast<const std::int8_t*>(values);
    for (std::size_t i = 0; i < kBlock; ++i) out.put(i, static_cast<float>(in[i]) * step);
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
