// int4-e3m0: a sign and a power of two in four bits, with a scale per block of 128 elements, as in Streaming DiLoCo
// (Douillard et al., arXiv:2501.18512). About 19 % relative error on normally distributed numbers. The error is the
// same for numbers down to 1/100 of the block's largest, which int4 rounds to zero.
//
// Payload of n elements, b = ceil(n / 128) blocks: 66 b bytes. A short last block is written as a whole one, with q = 0
// behind the elements.
//
//   byte 64 j + i    block j's elements i (bits 3..0) and i + 64 (bits 7..4), i in [0, 64): the sign (upper bit) and k
//                    in [0, 7]
//   byte 64 b + 2 j  block j's scale s: a little-endian bf16; element = +-2^(k - 7) * s, or 0 with k = 0
//
// s = largest magnitude of the block, rounded up to bf16, at most 0x7F7F; a block whose largest magnitude is below
// 2^-126 is all zeros, s = 0. t = |element| * (1 / s), each rounded to float32. k is the nearest: 0 below 2^-7; else
// the power of two nearest to t, the upper one of two, but at least 2^-6. Zero has no sign.
//
// Refused, because never written: s negative, denormal or not finite; s = 0 with values other than 0; a negative zero;
// a block with s != 0 and without k = 7; values other than 0 behind the last element.
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

struct E3m0 {
  static constexpr std::size_t kBlock = 128;
  static constexpr std::size_t kHalf = kBlock / 2;
  static constexpr std::size_t kValueBits = 4;
  static constexpr std::size_t kScaleBytes = 2;
  static constexpr std::uint32_t kSmallestScale = 0x0080'0000;  // 2^-126
  static constexpr std::uint32_t kLargestScale = 0x7F7F'0000;
  static constexpr std::int32_t kBias = 127 - 7;  // k + kBias is 2^(k - 7)'s exponent field

  static std::uint32_t scale_bits(std::uint32_t largest) {
    if (largest < kSmallestScale) return 0;
    return smaller((largest + 0xFFFF) & 0xFFFF'0000, kLargestScale);
  }

  static std::uint32_t nearest(float value, float inverse) {
    const std::uint32_t bits = bits_of(value);
    const auto t = static_cast<std::int32_t>(bits_of(float_of(bits & kMagnitude) * inverse));
    // Adding half of the fraction's range carries into the exponent from 1.5 on.
    const std::int32_t k = ((t + 0x0040'0000) >> 23) - kBias;
    const std::int32_t least = t >= (kBias << 23) ? 1 : 0;
    const std::int32_t chosen = k > least ? k : least;
    const std::uint32_t sign = chosen == 0 ? 0 : bits >> 31 << 3;
    return static_cast<std::uint32_t>(chosen) | sign;
  }

  template <typename In>
  static bool encode(In in, std::size_t, std::byte* values, std::byte* scale) {
    const std::uint32_t largest = largest_magnitude<kBlock>(in);
    if (largest >= kInfinity) return false;
    const std::uint32_t s = scale_bits(largest);
    *reinterpret_cast<Unaligned16*>(scale) = static_cast<std::uint16_t>(s >> 16);
    const float inverse = s == 0 ? 0.0F : 1.0F / float_of(s);
    auto* out = reinterpret_cast<std::uint8_t*>(values);
    for (std::size_t i = 0; i < kHalf; ++i) {
      out[i] = static_cast<std::uint8_t>(nearest(in[i], inverse) | nearest(in[i + kHalf], inverse) << 4);
    }
    return true;
  }

  static bool valid(const std::byte* values, const std::byte* scale) {
    const auto* in = reinterpret_cast<const std::uint8_t*>(values);
    std::uint8_t any = 0;
    std::uint8_t extreme = 0;
    std::uint8_t negative_zero = 0;
    for (std::size_t i = 0; i < kHalf; ++i) {
      any = static_cast<std::uint8_t>(any | in[i]);
      extreme = static_cast<std::uint8_t>(extreme | ((in[i] & 0x07) == 0x07) | ((in[i] & 0x70) == 0x70));
      negative_zero = static_cast<std::uint8_t>(negative_zero | ((in[i] & 0x0F) == 0x08) | ((in[i] & 0xF0) == 0x80));
    }
    const std::uint32_t s = std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16;
    if (s == 0) return any == 0;
    return s >= kSmallestScale && s <= kLargestScale && extreme != 0 && negative_zero == 0;
  }

  static std::uint32_t code(const std::byte* values, std::size_t i) {
    const auto both = static_cast<std::uint32_t>(values[i % kHalf]);
    return i < kHalf ? both & 0xF : both >> 4;
  }

  static float power_of_two(std::uint32_t code) {
    const std::uint32_t k = code & 7;
    const std::uint32_t magnitude = k == 0 ? 0 : (k + static_cast<std::uint32_t>(kBias)) << 23;
    return float_of(magnitude | (code & 8) << 28);
  }

  template <typename Out>
  static void decode(const std::byte* values, const std::byte* scale, Out out) {
    const float s = float_of(std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16);
    const auto* in = reinterpret_cast<const std::uint8_t*>(values);
    for (std::size_t i = 0; i < kHalf; ++i) out.put(i, power_of_two(in[i] & 0xFU) * s);
    for (std::size_t i = 0; i < kHalf; ++i) out.put(i + kHalf, power_of_two(in[i] >> 4) * s);
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
