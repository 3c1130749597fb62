#include "core/codec/kernels.h"

#include <algorithm>
#include <atomic>

#include "collab/status.h"

namespace collab::codec {
namespace {

const KernelTable& table_of(Path path) {
  switch (path) {
    case Path::kScalar: return scalar::kTable;
    case Path::kBaseline: return baseline::kTable;
#if defined(__x86_64__)
    case Path::kAvx2: return avx2::kTable;
    case Path::kAvx512: return avx512::kTable;
#else
    case Path::kAvx2:
    case Path::kAvx512: break;
#endif
  }
  panic("no codec kernels for this path on this architecture", __FILE__, __LINE__);
}

std::atomic<Path>& chosen() {
  static std::atomic<Path> path{paths_of_this_cpu().back()};
  return path;
}

}  // namespace

const Kernels& KernelTable::of(CodecId id) const {
  switch (id) {
    case CodecId::kFp32: return fp32;
    case CodecId::kBf16: return bf16;
    case CodecId::kFp16: return fp16;
    case CodecId::kInt8: return int8;
    case CodecId::kInt4: return int4;
    case CodecId::kInt4E3m0: return int4_e3m0;
    case CodecId::kInt2: return int2;
    case CodecId::kTopK64: return topk64;
    case CodecId::kTopK128: return topk128;
  }
  panic("no codec with this number", __FILE__, __LINE__);
}

std::string_view name_of(Path path) {
  switch (path) {
    case Path::kScalar: return "scalar";
    case Path::kBaseline: return "baseline";
    case Path::kAvx2: return "avx2";
    case Path::kAvx512: return "avx512";
  }
  return "unknown";
}

std::vector<Path> paths_of_this_cpu() {
  std::vector<Path> paths = {Path::kScalar, Path::kBaseline};
#if defined(__x86_64__)
  // These also ask whether the operating system saves the wide registers.
  if (__builtin_cpu_supports("avx2")) paths.push_back(Path::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    paths.push_back(Path::kAvx512);
  }
#endif
  return paths;
}

void force_path(Path path) {
  const std::vector<Path> possible = paths_of_this_cpu();
  COLLAB_CHECK(std::find(possible.begin(), possible.end(), path) != possible.end(),
               "this CPU cannot run the codec path that was asked for");
  chosen().store(path, std::memory_order_relaxed);
}

Path path_in_use() { return chosen().load(std::memory_order_relaxed); }

const KernelTable& kernels_in_use() { return table_of(path_in_use()); }

}  // namespace collab::codec
