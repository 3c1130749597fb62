// fp16: binary16 with a power-of-two scale per block of 256 elements, so that numbers of any size keep 11 bits of
// precision. Without the scale, deltas of 1e-6 would lose bits and values above 65504 would overflow.
//
// Payload of n elements, b = ceil(n / 256) blocks: 2 n + b bytes.
//
//   byte 2 i      element i: a little-endian 16-bit word h, IEEE 754 binary16 (sign 1, exponent 5, fraction 10)
//   byte 2 n + j  block j's exponent k, a signed byte; element = h * 2^-k
//
// The encoder takes e = floor(log2(largest magnitude of the block)), k = min(14 - e, 126), and rounds element * 2^k to
// nearest even. So the block's largest value lies in [2^14, 2^15], never near binary16's overflow, and elements down to
// 2^-28 of it keep a relative error of at most 2^-11. k stops at 126 (blocks of almost denormal numbers, blocks of
// zeros) so that 2^k and 2^-k are normal float32. With k = -113 a value that would round up to 2^15, that is to 2^128,
// becomes the next one below (0x77FF). Signed zeros are kept.
//
// Refused, because never written: k outside [-113, 126]; |h| above 0x7800 (2^15), or above 0x77FF when k = -113; a
// block with k < 126 whose largest |h| is below 0x7400 (2^14).
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

struct Fp16 {
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kValueBits = 16;
  static constexpr std::size_t kScaleBytes = 1;
  static constexpr int kSmallestExponent = -113;  // e = 127
  static constexpr int kLargestExponent = 126;

  // 2^exponent, exponent in [-126, 127].
  static float power_of_two(int exponent) { return float_of(static_cast<std::uint32_t>(exponent + 127) << 23); }

  static std::uint32_t largest_half(int k) { return k == kSmallestExponent ? 0x77FF : 0x7800; }

  // binary16 of a value of at most 2^15 in magnitude, to nearest even; the sign is left out.
  static std::uint32_t half_magnitude(float value) {
    const std::uint32_t bits = bits_of(value) & kMagnitude;
    constexpr std::uint32_t kRebias = (127U - 15U) << 23;
    const std::uint32_t normal = (bits - kRebias + 0xFFF + ((bits >> 13) & 1)) >> 13;
    // Below 2^-14 halves are multiples of 2^-24, as float32 are between 0.5 and 1: the addition rounds for us.
    const std::uint32_t denormal = bits_of(float_of(bits) + 0.5F) - bits_of(0.5F);
    return bits < (113U << 23) ? denormal : normal;
  }

  template <typename In>
  static bool encode(In in, std::size_t, std::byte* values, std::byte* scale) {
    const std::uint32_t largest = largest_magnitude<kBlock>(in);
    if (largest >= kInfinity) return false;
    const int wanted = 14 - (static_cast<int>(largest >> 23) - 127);
    const int k = wanted < kLargestExponent ? wanted : kLargestExponent;
    *scale = static_cast<std::byte>(k);
    const float factor = power_of_two(k);
    const std::uint32_t limit = largest_half(k);
    auto* out = reinterpret_cast<Unaligned16*>(values);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const float value = in[i];
      const std::uint32_t magnitude = smaller(half_magnitude(value * factor), limit);
      out[i] = static_cast<std::uint16_t>(magnitude | ((bits_of(value) >> 16) & 0x8000));
    }
    return true;
  }

  static bool valid(const std::byte* values, const std::byte* scale) {
    const int k{static_cast<std::int8_t>(*scale)};  // signed
    const auto* in = reinterpret_cast<const Unaligned16*>(values);
    std::uint16_t largest = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const auto magnitude = static_cast<std::uint16_t>(in[i] & 0x7FFF);
      largest = largest > magnitude ? largest : magnitude;
    }
    if (k < kSmallestExponent || k > kLargestExponent) return false;
    return largest <= largest_half(k) && (k == kLargestExponent || largest >= 0x7400);
  }

  template <typename Out>
  static void decode(const std::byte* values, const std::byte* scale, Out out) {
    const int k{static_cast<std::int8_t>(*scale)};  // signed
    const float factor = power_of_two(-k);
    const auto* in = reinterpret_cast<const Unaligned16*>(values);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint32_t half = in[i];
      const std::uint32_t magnitude = half & 0x7FFF;
      // Normal: move the fields and the bias. Denormal: an integer times 2^-24, made exactly by a subtraction.
      const std::uint32_t normal = (magnitude << 13) + ((127U - 15U) << 23);
      const float denormal = float_of(bits_of(0.5F) | magnitude) - 0.5F;
      const std::uint32_t bits = magnitude < 0x0400 ? bits_of(denormal) : normal;
      out.put(i, float_of(bits | ((half & 0x8000) << 16)) * factor);
    }
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
