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

// `n` is in elements; buffers have the sizes the codec promises. The encoders return false on NaN or infinity. The
// decoders return kAllValid, or the first block no encoder writes; what they wrote until then stays.
struct Kernels {
  bool (*encode)(const float* in, std::size_t n, std::byte* out);
  bool (*encode_difference)(const float* a, const float* b, std::size_t n, std::byte* out);
  std::size_t (*decode)(const std::byte* in, std::size_t n, float* out);
  std::size_t (*decode_scaled)(const std::byte* in, std::size_t n, float scale, float* out);
  std::size_t (*decode_accumulate)(const std::byte* in, std::size_t n, float scale, float* acc);
};

struct KernelTable {
  Kernels fp32;
  Kernels bf16;
  Kernels fp16;
  Kernels int8;
  [[nodiscard]] const Kernels& of(CodecId id) const;
};

// Bytes a codec spends: one value an element, one scale a block.
struct Layout {
  std::size_t value_bytes;
  std::size_t scale_bytes;
};
[[nodiscard]] Layout layout_of(CodecId id);
inline constexpr std::size_t kBlockOfScale = 256;

enum class Path : std::uint8_t {
  kScalar,    // no vectoriser: the reference
  kBaseline,  // what every CPU of the architecture has
  kAvx2,
  kAvx512,
};
[[nodiscard]] std::string_view name_of(Path path);
[[nodiscard]] std::vector<Path> paths_of_this_cpu();  // ascending; the last one is used unless another is forced
void force_path(Path path);                           // must be one of paths_of_this_cpu()
[[nodiscard]] Path path_in_use();
[[nodiscard]] const KernelTable& kernels_in_use();

// One compilation each.
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
