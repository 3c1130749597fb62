// The codecs' loops, compiled once per instruction set and chosen when the process starts.
//
// Threads: pure functions; force_path() is for tests and benchmarks, before other threads use codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "collab/types.h"

namespace collab::codec {

inline constexpr std::size_t kAllValid = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kNotFinite = std::numeric_limits<std::size_t>::max();

// One codec's functions. `n` is in elements; buffers have the sizes that the codec promises. The encoders return the
// payload's length, or kNotFinite. The decoders return kAllValid, or the first block that no encoder writes, or the
// number of blocks if bytes are left over. Elements written until then stay. Only formats without a fixed size use
// `size`.
struct Kernels {
  std::size_t block;        // elements per block
  std::size_t scale_bytes;  // bytes per block for scales, at the end of a payload of fixed size
  bool fixed_size;
  std::size_t (*encoded_size)(std::size_t n);
  std::size_t (*encode)(const float* in, std::size_t n, std::byte* out);
  std::size_t (*encode_difference)(const float* a, const float* b, std::size_t n, std::byte* out);
  std::size_t (*encode_with_feedback)(const float* in, const float* residual, std::size_t n, std::byte* out,
                                      float* next);
  std::size_t (*encode_difference_with_feedback)(const float* a, const float* b, const float* residual, std::size_t n,
                                                 std::byte* out, float* next);
  std::size_t (*decode)(const std::byte* in, std::size_t size, std::size_t n, float* out);
  std::size_t (*decode_scaled)(const std::byte* in, std::size_t size, std::size_t n, float scale, float* out);
  std::size_t (*decode_accumulate)(const std::byte* in, std::size_t size, std::size_t n, float scale, float* acc);
};

struct KernelTable {
  Kernels fp32;
  Kernels bf16;
  Kernels fp16;
  Kernels int8;
  Kernels int4;
  Kernels int4_e3m0;
  Kernels int2;
  Kernels topk64;
  Kernels topk128;
  [[nodiscard]] const Kernels& of(CodecId id) const;
};

enum class Path : std::uint8_t {
  kScalar,    // no vectoriser: the reference
  kBaseline,  // the instructions that every CPU of the architecture has
  kAvx2,
  kAvx512,
};
[[nodiscard]] std::string_view name_of(Path path);
[[nodiscard]] std::vector<Path> paths_of_this_cpu();  // ascending; the last one is used unless another is forced
void force_path(Path path);                           // must be one of paths_of_this_cpu()
[[nodiscard]] Path path_in_use();
[[nodiscard]] const KernelTable& kernels_in_use();

// Each compiled for its own path.
namespace scalar {
extern const KernelTable kTable;
}
namespace baseline {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}

}  // namespace collab::codec
