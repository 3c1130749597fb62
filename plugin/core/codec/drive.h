// Runs a block format over a chunk: whole blocks in place, the short last block through a padded copy, so that a format
// only ever sees 256 elements. Zeros change neither a block's largest magnitude nor any other element.
//
// Included once by every kernels_*.cpp after it has named COLLAB_CODEC_PATH; ends in that path's kTable.
// Threads: pure functions.
#pragma once

#include "core/codec/bf16.h"
#include "core/codec/fp16.h"
#include "core/codec/fp32.h"
#include "core/codec/int8.h"
#include "core/codec/kernels.h"

namespace collab::codec::COLLAB_CODEC_PATH {

static_assert(kBlock == kBlockOfScale && kBlockElements % kBlock == 0);

// Elements between a block and the one whose memory is asked for meanwhile: 8 KiB of float32. The hardware's own
// prefetching stops at page boundaries and hardly helps stores; with this a decoder runs at the speed of memcpy.
inline constexpr std::size_t kAhead = 8 * kBlock;

template <typename Format, typename In>
inline bool encode_chunk(In in, std::size_t n, std::byte* out) {
  std::byte* scales = out + n * Format::kValueBytes;
  const std::size_t whole = n / kBlock;
  for (std::size_t block = 0; block < whole; ++block) {
    const std::size_t first = block * kBlock;
    if (first + kAhead + kBlock <= n) {
      in.from(first + kAhead).prefetch();
      prefetch_memory<kForWriting>(out + (first + kAhead) * Format::kValueBytes, kBlock * Format::kValueBytes);
    }
    if (!Format::encode(in.from(first), out + first * Format::kValueBytes, scales + block * Format::kScaleBytes)) {
      return false;
    }
  }
  const std::size_t done = whole * kBlock;
  if (done == n) return true;
  float padded[kBlock] = {};
  std::byte values[kBlock * Format::kValueBytes];
  for (std::size_t i = done; i < n; ++i) padded[i - done] = in[i];
  if (!Format::encode(Values{padded}, values, scales + whole * Format::kScaleBytes)) return false;
  __builtin_memcpy(out + done * Format::kValueBytes, values, (n - done) * Format::kValueBytes);
  return true;
}

template <typename Format, typename Out>
inline std::size_t decode_chunk(const std::byte* in, std::size_t n, Out out) {
  const std::byte* scales = in + n * Format::kValueBytes;
  const std::size_t whole = n / kBlock;
  for (std::size_t block = 0; block < whole; ++block) {
    const std::size_t first = block * kBlock;
    const std::byte* values = in + first * Format::kValueBytes;
    const std::byte* scale = scales + block * Format::kScaleBytes;
    if (!Format::valid(values, scale)) return block;
    if (first + kAhead + kBlock <= n) out.from(first + kAhead).prefetch();
    Format::decode(values, scale, out.from(first));
  }
  const std::size_t done = whole * kBlock;
  if (done == n) return kAllValid;
  float padded[kBlock];
  std::byte values[kBlock * Format::kValueBytes] = {};
  const std::byte* scale = scales + whole * Format::kScaleBytes;
  __builtin_memcpy(values, in + done * Format::kValueBytes, (n - done) * Format::kValueBytes);
  if (!Format::valid(values, scale)) return whole;
  Format::decode(values, scale, Store{padded});
  for (std::size_t i = done; i < n; ++i) out.put(i, padded[i - done]);
  return kAllValid;
}

template <typename Format>
struct Entry {
  static bool encode(const float* in, std::size_t n, std::byte* out) {
    return encode_chunk<Format>(Values{in}, n, out);
  }
  static bool encode_difference(const float* a, const float* b, std::size_t n, std::byte* out) {
    return encode_chunk<Format>(Difference{a, b}, n, out);
  }
  static std::size_t decode(const std::byte* in, std::size_t n, float* out) {
    return decode_chunk<Format>(in, n, Store{out});
  }
  static std::size_t decode_scaled(const std::byte* in, std::size_t n, float scale, float* out) {
    return decode_chunk<Format>(in, n, StoreScaled{out, scale});
  }
  static std::size_t decode_accumulate(const std::byte* in, std::size_t n, float scale, float* acc) {
    return decode_chunk<Format>(in, n, Accumulate{acc, scale});
  }
  static constexpr Kernels kernels() { return {encode, encode_difference, decode, decode_scaled, decode_accumulate}; }
};

constinit const KernelTable kTable = {Entry<Fp32>::kernels(), Entry<Bf16>::kernels(), Entry<Fp16>::kernels(),
                                      Entry<Int8>::kernels()};

}  // namespace collab::codec::COLLAB_CODEC_PATH
