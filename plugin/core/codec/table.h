// One path's kernels, from its formats.
//
// Included once by every kernels_*.cpp after it has named COLLAB_CODEC_PATH; ends in that path's kTable.
// Threads: pure functions.
#pragma once

#include "core/codec/bf16.h"
#include "core/codec/drive.h"
#include "core/codec/e3m0.h"
#include "core/codec/fp16.h"
#include "core/codec/fp32.h"
#include "core/codec/int2.h"
#include "core/codec/int4.h"
#include "core/codec/int8.h"
#include "core/codec/kernels.h"
#include "core/codec/topk.h"

namespace collab::codec::COLLAB_CODEC_PATH {

template <typename Chunk>
struct Entry {
  static std::size_t encode(const float* in, std::size_t n, std::byte* out) {
    return Chunk::encode(Values{in}, n, out);
  }
  static std::size_t encode_difference(const float* a, const float* b, std::size_t n, std::byte* out) {
    return Chunk::encode(Difference{a, b}, n, out);
  }
  static std::size_t encode_with_feedback(const float* in, const float* residual, std::size_t n, std::byte* out,
                                          float* next) {
    return Chunk::encode_with_feedback(Values{in}, residual, n, out, next);
  }
  static std::size_t encode_difference_with_feedback(const float* a, const float* b, const float* residual,
                                                     std::size_t n, std::byte* out, float* next) {
    return Chunk::encode_with_feedback(Difference{a, b}, residual, n, out, next);
  }
  static std::size_t decode(const std::byte* in, std::size_t size, std::size_t n, float* out) {
    return Chunk::decode(in, size, n, Store{out});
  }
  static std::size_t decode_scaled(const std::byte* in, std::size_t size, std::size_t n, float scale, float* out) {
    return Chunk::decode(in, size, n, StoreScaled{out, scale});
  }
  static std::size_t decode_accumulate(const std::byte* in, std::size_t size, std::size_t n, float scale, float* acc) {
    return Chunk::decode(in, size, n, Accumulate{acc, scale});
  }
  static constexpr Kernels kernels() {
    return {.block = Chunk::kBlock,
            .scale_bytes = Chunk::kScaleBytes,
            .fixed_size = Chunk::kFixedSize,
            .encoded_size = Chunk::encoded_size,
            .encode = encode,
            .encode_difference = encode_difference,
            .encode_with_feedback = encode_with_feedback,
            .encode_difference_with_feedback = encode_difference_with_feedback,
            .decode = decode,
            .decode_scaled = decode_scaled,
            .decode_accumulate = decode_accumulate};
  }
};

// NOLINTNEXTLINE(misc-definitions-in-headers): see above
constinit const KernelTable kTable = {
    .fp32 = Entry<Blocks<Fp32>>::kernels(),
    .bf16 = Entry<Blocks<Bf16>>::kernels(),
    .fp16 = Entry<Blocks<Fp16>>::kernels(),
    .int8 = Entry<Blocks<Int8>>::kernels(),
    .int4 = Entry<Blocks<Int4>>::kernels(),
    .int4_e3m0 = Entry<Blocks<E3m0>>::kernels(),
    .int2 = Entry<Blocks<Int2>>::kernels(),
    .topk64 = Entry<TopK<64, 5>>::kernels(),
    .topk128 = Entry<TopK<128, 4>>::kernels(),
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
