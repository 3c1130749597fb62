// Building blocks of the block formats (fp32.h, bf16.h, fp16.h, int8.h, int4.h, e3m0.h, int2.h): plain loops over one
// block of elements, without intrinsics and branches on data, so that the compiler vectorises them.
//
// The formats are compiled once per instruction set (kernels_*.cpp), each time in its own namespace, named by
// COLLAB_CODEC_PATH. The linker must never merge two copies of an inline function, because one of them would not run on
// every CPU. For the same reason nothing here calls the standard library. IEEE arithmetic without contraction and fixed
// loops give the same bits in every copy.
//
// Threads: pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/codec/kernels.h"

#ifndef COLLAB_CODEC_PATH
#error "include this from a kernels_*.cpp that names its path"
#endif

static_assert(std::endian::native == std::endian::little, "payloads are little-endian; so are we");

namespace collab::codec::COLLAB_CODEC_PATH {

inline constexpr std::uint32_t kSign = 0x8000'0000;
inline constexpr std::uint32_t kMagnitude = 0x7FFF'FFFF;
inline constexpr std::uint32_t kInfinity = 0x7F80'0000;

// Payload bytes may be at any address. These are packed structs, not types with aligned(1): clang drops that attribute
// if a type is deduced or is a template argument.
struct [[gnu::packed, gnu::may_alias]] Unaligned16 {
  std::uint16_t value;
  operator std::uint16_t() const { return value; }  // NOLINT(google-explicit-constructor)
  Unaligned16& operator=(std::uint16_t to) {
    value = to;
    return *this;
  }
};
struct [[gnu::packed, gnu::may_alias]] Unaligned64 {
  std::uint64_t value;
  operator std::uint64_t() const { return value; }  // NOLINT(google-explicit-constructor)
};
struct [[gnu::packed, gnu::may_alias]] UnalignedFloat {
  float value;
  operator float() const { return value; }  // NOLINT(google-explicit-constructor)
  UnalignedFloat& operator=(float to) {
    value = to;
    return *this;
  }
};

inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits.
inline constexpr float kRounder = 12582912.0F;

inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }
inline std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

inline constexpr int kForReading = 0;
inline constexpr int kForWriting = 1;
template <int kPurpose>
inline void prefetch_memory(const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::byte*>(from) + i, kPurpose);
}

// ---- where elements come from --------------------------------------------------------------------

struct Values {
  const float* a;
  float operator[](std::size_t i) const { return a[i]; }
  template <std::size_t kElements>
  void prefetch() const {
    prefetch_memory<kForReading>(a, kElements * sizeof(float));
  }
  Values from(std::size_t offset) const { return {a + offset}; }
};

struct Difference {
  const float* a;
  const float* b;
  float operator[](std::size_t i) const { return a[i] - b[i]; }
  template <std::size_t kElements>
  void prefetch() const {
    prefetch_memory<kForReading>(a, kElements * sizeof(float));
    prefetch_memory<kForReading>(b, kElements * sizeof(float));
  }
  Difference from(std::size_t offset) const { return {a + offset, b + offset}; }
};

template <typename In>
struct Sum {
  In in;
  const float* residual;
  float operator[](std::size_t i) const { return in[i] + residual[i]; }
  template <std::size_t kElements>
  void prefetch() const {
    in.template prefetch<kElements>();
    prefetch_memory<kForReading>(residual, kElements * sizeof(float));
  }
  Sum from(std::size_t offset) const { return {in.from(offset), residual + offset}; }
};

// The largest magnitude of a block, as bits: magnitudes order like integers, NaN and infinity above all else.
template <std::size_t kElements, typename In>
inline std::uint32_t largest_magnitude(In in) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < kElements; ++i) largest = larger(largest, bits_of(in[i]) & kMagnitude);
  return largest;
}

// ---- where elements go ---------------------------------------------------------------------------

struct Store {
  static constexpr bool kOverwrites = true;
  float* out;
  void put(std::size_t i, float value) const { out[i] = value; }
  template <std::size_t kElements>
  void prefetch() const {
    prefetch_memory<kForWriting>(out, kElements * sizeof(float));
  }
  Store from(std::size_t offset) const { return {out + offset}; }
};

struct StoreScaled {
  static constexpr bool kOverwrites = true;
  float* out;
  float scale;
  void put(std::size_t i, float value) const { out[i] = scale * value; }
  template <std::size_t kElements>
  void prefetch() const {
    prefetch_memory<kForWriting>(out, kElements * sizeof(float));
  }
  StoreScaled from(std::size_t offset) const { return {out + offset, scale}; }
};

struct Accumulate {
  static constexpr bool kOverwrites = false;
  float* acc;
  float scale;
  void put(std::size_t i, float value) const { acc[i] = acc[i] + scale * value; }
  template <std::size_t kElements>
  void prefetch() const {
    prefetch_memory<kForWriting>(acc, kElements * sizeof(float));
  }
  Accumulate from(std::size_t offset) const { return {acc + offset, scale}; }
};

// The part of `whole` that the payload leaves out: error feedback's next residual.
struct LeaveOut {
  const float* whole;
  float* next;
  void put(std::size_t i, float value) const { next[i] = whole[i] - value; }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
