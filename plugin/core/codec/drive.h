// Runs a block format over a chunk: whole blocks in place, the short last block through a padded copy, so that a format
// only ever sees whole blocks. Zeros change neither a block's largest magnitude nor any other element.
//
// Threads: pure functions.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

// Prefetch distance in elements: 8 KiB of float32. The hardware's own prefetching stops at page boundaries and hardly
// helps stores; with this distance a decoder runs at the speed of memcpy.
inline constexpr std::size_t kAhead = 2048;

// A format of fixed size: all values, then one scale a block. Values narrower than a byte share bytes within their
// block, and a short last block is as long as a whole one.
template <typename Format>
struct Blocks {
  static constexpr bool kFixedSize = true;
  static constexpr std::size_t kBlock = Format::kBlock;
  static constexpr std::size_t kScaleBytes = Format::kScaleBytes;
  static constexpr std::size_t kValueBytes = kBlock * Format::kValueBits / 8;  // of a whole block
  static_assert(kBlockElements % kBlock == 0);

  static std::size_t blocks(std::size_t n) { return n / kBlock + (n % kBlock == 0 ? 0 : 1); }
  static std::size_t bytes_of_values(std::size_t n) {
    return Format::kValueBits < 8 ? blocks(n) * kValueBytes : n * (Format::kValueBits / 8);
  }
  static std::size_t encoded_size(std::size_t n) { return bytes_of_values(n) + blocks(n) * kScaleBytes; }

  template <typename In>
  static std::size_t encode(In in, std::size_t n, std::byte* out) {
    std::byte* scales = out + bytes_of_values(n);
    const std::size_t whole = n / kBlock;
    for (std::size_t block = 0; block < whole; ++block) {
      const std::size_t first = block * kBlock;
      if (first + kAhead + kBlock <= n) {
        in.from(first + kAhead).template prefetch<kBlock>();
        prefetch_memory<kForWriting>(out + (block + kAhead / kBlock) * kValueBytes, kValueBytes);
      }
      if (!Format::encode(in.from(first), kBlock, out + block * kValueBytes, scales + block * kScaleBytes)) {
        return kNotFinite;
      }
    }
    const std::size_t done = whole * kBlock;
    if (done == n) return encoded_size(n);
    float padded[kBlock] = {};
    std::byte values[kValueBytes];
    for (std::size_t i = done; i < n; ++i) padded[i - done] = in[i];
    if (!Format::encode(Values{padded}, n - done, values, scales + whole * kScaleBytes)) return kNotFinite;
    __builtin_memcpy(out + whole * kValueBytes, values, bytes_of_values(n) - whole * kValueBytes);
    return encoded_size(n);
  }

  // A block of in + residual is built in a copy in the L1 cache, encoded from there and decoded again. So memory is
  // read once and written once.
  template <typename In>
  static std::size_t encode_with_feedback(In in, const float* residual, std::size_t n, std::byte* out, float* next) {
    std::byte* scales = out + bytes_of_values(n);
    const Sum<In> whole{in, residual};
    float sum[kBlock];
    const std::size_t whole_blocks = n / kBlock;
    for (std::size_t block = 0; block < whole_blocks; ++block) {
      const std::size_t first = block * kBlock;
      if (first + kAhead + kBlock <= n) {
        whole.from(first + kAhead).template prefetch<kBlock>();
        if (next != residual) prefetch_memory<kForWriting>(next + first + kAhead, kBlock * sizeof(float));
      }
      for (std::size_t i = 0; i < kBlock; ++i) sum[i] = whole[first + i];
      std::byte* values = out + block * kValueBytes;
      std::byte* scale = scales + block * kScaleBytes;
      if (!Format::encode(Values{sum}, kBlock, values, scale)) return kNotFinite;
      Format::decode(values, scale, LeaveOut{sum, next + first});
    }
    const std::size_t done = whole_blocks * kBlock;
    if (done == n) return encoded_size(n);
    float left[kBlock];
    std::byte values[kValueBytes];
    std::byte* scale = scales + whole_blocks * kScaleBytes;
    for (std::size_t i = 0; i < kBlock; ++i) sum[i] = done + i < n ? whole[done + i] : 0.0F;
    if (!Format::encode(Values{sum}, n - done, values, scale)) return kNotFinite;
    Format::decode(values, scale, LeaveOut{sum, left});
    for (std::size_t i = done; i < n; ++i) next[i] = left[i - done];
    __builtin_memcpy(out + whole_blocks * kValueBytes, values, bytes_of_values(n) - whole_blocks * kValueBytes);
    return encoded_size(n);
  }

  template <typename Out>
  static std::size_t decode(const std::byte* in, std::size_t, std::size_t n, Out out) {
    const std::byte* scales = in + bytes_of_values(n);
    const std::size_t whole = n / kBlock;
    for (std::size_t block = 0; block < whole; ++block) {
      const std::size_t first = block * kBlock;
      const std::byte* values = in + block * kValueBytes;
      const std::byte* scale = scales + block * kScaleBytes;
      if (!Format::valid(values, scale)) return block;
      if (first + kAhead + kBlock <= n) out.from(first + kAhead).template prefetch<kBlock>();
      Format::decode(values, scale, out.from(first));
    }
    const std::size_t done = whole * kBlock;
    if (done == n) return kAllValid;
    float padded[kBlock];
    std::byte values[kValueBytes] = {};
    const std::byte* scale = scales + whole * kScaleBytes;
    __builtin_memcpy(values, in + whole * kValueBytes, bytes_of_values(n) - whole * kValueBytes);
    if (!Format::valid(values, scale) || !nothing_behind(values, n - done)) return whole;
    Format::decode(values, scale, Store{padded});
    for (std::size_t i = done; i < n; ++i) out.put(i, padded[i - done]);
    return kAllValid;
  }

 private:
  static bool nothing_behind(const std::byte* values, std::size_t used) {
    if constexpr (Format::kValueBits < 8) {
      for (std::size_t i = used; i < kBlock; ++i) {
        if (Format::code(values, i) != 0) return false;
      }
    }
    return true;
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
