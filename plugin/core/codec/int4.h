// int4: sixteen even steps per block of 128 elements, placed so that the largest element is one of them. About 10.4 %
// relative error on normally distributed numbers.
//
// Payload of n elements, b = ceil(n / 128) blocks: 66 b bytes. A short last block is written as a whole one, with q = 0
// behind the elements.
//
//   byte 64 j + i    block j's elements i (bits 3..0) and i + 64 (bits 7..4), i in [0, 64): q, two's complement, in
//                    [-8, 7]
//   byte 64 b + 2 j  block j's scale s: a little-endian bf16; element = q * s
//
// Let e be the block's element of the largest magnitude (the negative one of two such). s = e / -8, rounded away from
// zero to bf16, at most 0x7DFF in magnitude (above, 8 s would overflow). So e itself is written as q = -8 whatever its
// sign; of the seventeen values from -8 to 8 only the one opposite to e is missing. A block with |e| below 2^-123
// is all zeros, s = 0. q = element * (1 / s), each rounded to float32, then to the nearest integer, ties to even, at
// most 7. q * s is exact in float32.
//
// Refused, because never written: s not finite, denormal, -0 or above the bound; s = 0 with q != 0; a block with s != 0
// and without q = -8; q != 0 behind the last element.
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

struct Int4 {
  static constexpr std::size_t kBlock = 128;
  static constexpr std::size_t kHalf = kBlock / 2;
  static constexpr std::size_t kValueBits = 4;
  static constexpr std::size_t kScaleBytes = 2;
  static constexpr std::uint32_t kSmallestExtreme = (127U - 123U) << 23;  // 2^-123, so that s is normal
  static constexpr std::uint32_t kSmallestScale = 0x0080'0000;            // 2^-126
  static constexpr std::uint32_t kLargestScale = 0x7DFF'0000;             // the largest bf16 s with 8 s finite

  // `key` is the extreme's bits with the sign moved from the top to the bottom.
  static std::uint32_t scale_bits(std::uint32_t key) {
    const std::uint32_t magnitude = key >> 1;
    if (magnitude < kSmallestExtreme) return 0;
    const std::uint32_t eighth = magnitude - (3U << 23);
    const std::uint32_t rounded_up = smaller((eighth + 0xFFFF) & 0xFFFF'0000, kLargestScale);
    return rounded_up | ((key & 1) == 0 ? kSign : 0);
  }

  static std::uint32_t steps(float value, float inverse) {
    const auto nearest = static_cast<std::int32_t>(bits_of(value * inverse + kRounder) - bits_of(kRounder));
    return static_cast<std::uint32_t>(nearest < 7 ? nearest : 7) & 0xF;
  }

  template <typename In>
  static bool encode(In in, std::size_t, std::byte* values, std::byte* scale) {
    std::uint32_t key = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint32_t bits = bits_of(in[i]);
      key = larger(key, bits << 1 | bits >> 31);
    }
    if (key >> 1 >= kInfinity) return false;
    const std::uint32_t s = scale_bits(key);
    *reinterpret_cast<Unaligned16*>(scale) = static_cast<std::uint16_t>(s >> 16);
    const float inverse = s == 0 ? 0.0F : 1.0F / float_of(s);
    auto* out = reinterpret_cast<std::uint8_t*>(values);
    for (std::size_t i = 0; i < kHalf; ++i) {
      out[i] = static_cast<std::uint8_t>(steps(in[i], inverse) | steps(in[i + kHalf], inverse) << 4);
    }
    return true;
  }

  static bool valid(const std::byte* values, const std::byte* scale) {
    const auto* in = reinterpret_cast<const std::uint8_t*>(values);
    std::uint8_t any = 0;
    std::uint8_t extreme = 0;
    for (std::size_t i = 0; i < kHalf; ++i) {
      any = static_cast<std::uint8_t>(any | in[i]);
      extreme = static_cast<std::uint8_t>(extreme | ((in[i] & 0x0F) == 0x08) | ((in[i] & 0xF0) == 0x80));
    }
    const std::uint32_t s = std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16;
    if (s == 0) return any == 0;
    const std::uint32_t magnitude = s & kMagnitude;
    return magnitude >= kSmallestScale && magnitude <= kLargestScale && extreme != 0;
  }

  static std::uint32_t code(const std::byte* values, std::size_t i) {
    const auto both = static_cast<std::uint32_t>(values[i % kHalf]);
    return i < kHalf ? both & 0xF : both >> 4;
  }

  template <typename Out>
  static void decode(const std::byte* values, const std::byte* scale, Out out) {
    const float step = float_of(std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16);
    const auto* in = reinterpret_cast<const std::uint8_t*>(values);
    for (std::size_t i = 0; i < kHalf; ++i) {
      out.put(i, static_cast<float>(static_cast<std::int32_t>((in[i] & 0xF) ^ 8) - 8) * step);
    }
    for (std::size_t i = 0; i < kHalf; ++i) {
      out.put(i + kHalf, static_cast<float>(static_cast<std::int32_t>((in[i] >> 4) ^ 8) - 8) * step);
    }
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
