// int2: four values per block of 64 elements, -3 s, -s, s and 3 s. About 34 % relative error on normally distributed
// numbers, so it is meant for use with error feedback.
//
// Payload of n elements, b = ceil(n / 64) blocks: 18 b bytes. A short last block is written as a whole one, with q = 0
// behind the elements.
//
//   byte 16 j + i    block j's elements i (bits 1..0), i + 16 (bits 3..2), i + 32 (bits 5..4), i + 48 (bits 7..6), i in
//                    [0, 16): q; bit 0 is the sign, bit 1 tells 3 s from s
//   byte 16 b + 2 j  block j's scale s: a little-endian bf16; with s = 0 all q are 0 and all elements +0
//
// s is the best fit (least squares) if the elements above 1.25 times the mean magnitude are taken for 3 s. In
// float32, with a = |element| * 2^-8 and m the elements of the block: T = sum of a over the block, t = T * (320 / m) ;
// L the elements with |element| >= t, S = sum of a over L, l their number; s = (T + 2 S) / (m + 8 l) * 2^8, rounded to
// nearest bf16, ties to even, at most 0x7EAA (above, 3 s would overflow); below 2^-126 it is 0. Sums use sixteen lanes:
// lane i adds elements i, i + 16, i + 32, i + 48 in this order. Then the lanes are added: i and i + 8, i and i + 4, i
// and i + 2, 0 and 1. An element with |element| >= 2 s becomes 3 s.
//
// Refused, because never written: s negative, denormal or above the bound; s = 0 with q != 0; q != 0 behind the last
// element.
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

struct Int2 {
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kLanes = 16;
  static constexpr std::size_t kValueBits = 2;
  static constexpr std::size_t kScaleBytes = 2;
  static constexpr std::uint32_t kSmallestScale = 0x0080'0000;  // 2^-126
  static constexpr std::uint32_t kLargestScale = 0x7EAA'0000;   // the largest bf16 s with 3 s finite

  template <std::size_t kWidth = kLanes / 2, typename T>
  static T sum_of_lanes(T* lanes) {
    for (std::size_t i = 0; i < kWidth; ++i) lanes[i] = lanes[i] + lanes[i + kWidth];
    if constexpr (kWidth > 1) sum_of_lanes<kWidth / 2>(lanes);
    return lanes[0];
  }

  // The bits of s; `total` is T.
  static std::uint32_t scale_bits(const float* magnitudes, std::size_t used, float total) {
    const float threshold = total * (320.0F / static_cast<float>(used));
    float sums[kLanes];
    float counts[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) {
      const auto one_if_large = [&](std::size_t at) { return magnitudes[at] >= threshold ? 1.0F : 0.0F; };
      const float one = one_if_large(i);
      const float two = one_if_large(i + kLanes);
      const float three = one_if_large(i + 2 * kLanes);
      const float four = one_if_large(i + 3 * kLanes);
      sums[i] = magnitudes[i] * 0x1.0p-8F * one + magnitudes[i + kLanes] * 0x1.0p-8F * two +
                magnitudes[i + 2 * kLanes] * 0x1.0p-8F * three + magnitudes[i + 3 * kLanes] * 0x1.0p-8F * four;
      counts[i] = one + two + three + four;
    }
    const float large_sum = sum_of_lanes(sums);
    const float weight = static_cast<float>(used) + 8.0F * sum_of_lanes(counts);
    const std::uint32_t exact = bits_of((total + 2.0F * large_sum) / weight * 0x1.0p8F);
    const std::uint32_t rounded = (exact + 0x7FFF + ((exact >> 16) & 1)) & 0xFFFF'0000;
    return rounded < kSmallestScale ? 0 : smaller(rounded, kLargestScale);
  }

  template <typename In>
  static bool encode(In in, std::size_t used, std::byte* values, std::byte* scale) {
    float magnitudes[kBlock];
    std::uint32_t signs[kBlock];
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint32_t bits = bits_of(in[i]);
      magnitudes[i] = float_of(bits & kMagnitude);
      signs[i] = bits >> 31;
    }
    float sums[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) {
      sums[i] = magnitudes[i] * 0x1.0p-8F + magnitudes[i + kLanes] * 0x1.0p-8F +
                magnitudes[i + 2 * kLanes] * 0x1.0p-8F + magnitudes[i + 3 * kLanes] * 0x1.0p-8F;
    }
    const float total = sum_of_lanes(sums);
    if ((bits_of(total) & kMagnitude) >= kInfinity) return false;  // finite elements cannot add up to infinity
    const std::uint32_t s = scale_bits(magnitudes, used, total);
    *reinterpret_cast<Unaligned16*>(scale) = static_cast<std::uint16_t>(s >> 16);
    const float from = 2.0F * float_of(s);
    const std::uint32_t written = s == 0 ? 0 : 0xFF;
    // In words first, then in bytes: loops over elements of one size vectorise best.
    std::uint32_t four[kLanes] = {};
    for (std::size_t part = 0; part < 4; ++part) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        const std::uint32_t large = magnitudes[part * kLanes + i] >= from ? 2 : 0;
        four[i] |= (signs[part * kLanes + i] | large) << (2 * part);
      }
    }
    for (std::size_t i = 0; i < kLanes; ++i) values[i] = static_cast<std::byte>(four[i] & written);
    return true;
  }

  static bool valid(const std::byte* values, const std::byte* scale) {
    const auto* in = reinterpret_cast<const std::uint8_t*>(values);
    std::uint8_t any = 0;
    for (std::size_t i = 0; i < kLanes; ++i) any = static_cast<std::uint8_t>(any | in[i]);
    const std::uint32_t s = std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16;
    return s == 0 ? any == 0 : s >= kSmallestScale && s <= kLargestScale;
  }

  static std::uint32_t code(const std::byte* values, std::size_t i) {
    return static_cast<std::uint32_t>(values[i % kLanes]) >> (2 * (i / kLanes)) & 3;
  }

  template <typename Out>
  static void decode(const std::byte* values, const std::byte* scale, Out out) {
    const std::uint32_t s = std::uint32_t{*reinterpret_cast<const Unaligned16*>(scale)} << 16;
    const std::uint32_t three = bits_of(3.0F * float_of(s));
    std::uint32_t four[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) four[i] = static_cast<std::uint32_t>(values[i]);
    for (std::size_t part = 0; part < 4; ++part) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        const std::uint32_t q = four[i] >> (2 * part);
        out.put(part * kLanes + i, float_of(((q & 2) == 0 ? s : three) | (q & 1) << 31));
      }
    }
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
