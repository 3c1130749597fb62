// Codecs against memcpy, one thread, in DRAM: A is memcpy of the float32 input, B one operation of one codec.
//
//   codec_bench [--elements N] [--pairs N] [--path scalar|baseline|avx2|avx512] [--only CODEC] [--operations a,b]
//               [--json FILE]
//
// Exit status 1 when a limit is missed. Times, as multiples of memcpy's: encode and decode 2 (encoders of top-k 1 /
// 0.15), decode_accumulate 1 / 0.9, encode_with_feedback 1 / 0.6 with int8, 2 with int4, 1 / 0.15 with top-k. Relative
// errors on normally distributed numbers of any size: int8 0.7 %, int4 11 %. Payloads, for 124.4 million elements: int8
// 126 MB, int4 65 MB, int2 36 MB, topk64 2.5 MB.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collab/codec.h"
#include "core/base/prng.h"
#include "core/codec/kernels.h"
#include "tests/bench/bench.h"

namespace {

using namespace collab;

// Normally distributed numbers (Box-Muller), times `scale`.
std::vector<float> normal_vector(std::size_t n, float scale, std::uint64_t seed) {
  std::vector<float> values(n);
  Prng random(seed);
  for (std::size_t i = 0; i < n; i += 2) {
    const double u = 1.0 - random.uniform();
    const double angle = 6.283185307179586 * random.uniform();
    const double radius = std::sqrt(-2.0 * std::log(u));
    values[i] = scale * static_cast<float>(radius * std::cos(angle));
    if (i + 1 < n) values[i + 1] = scale * static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

// The payload alone.
std::vector<std::byte> encoded(const Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(codec.encoded_size(values.size()));
  const std::optional<std::size_t> size = codec.encode(values, bytes);
  if (!size) std::abort();
  bytes.resize(*size);
  return bytes;
}

double relative_rms_error(const Codec& codec, const std::vector<float>& values) {
  std::vector<float> back(values.size());
  if (!codec.decode(encoded(codec, values), back).ok()) return INFINITY;
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = double{values[i]} - double{back[i]};
    error += difference * difference;
    norm += double{values[i]} * double{values[i]};
  }
  return std::sqrt(error / norm);
}

constexpr std::size_t kChunk = 65'536;  // elements: COLLAB_CHUNK_KIB's default

// What is good enough; 0: for information.
struct Limits {
  double encode = 2.0;
  double with_feedback = 0;
  double decode = 2.0;
  double accumulate = 1 / 0.9;
  double error = 0;
  double payload = 0;  // bytes for 124.4 million elements
};

Limits limits_of(CodecId id) {
  switch (id) {
    case CodecId::kFp32: return {0, 0, 0, 0, 0, 0};
    case CodecId::kBf16: return {};
    case CodecId::kFp16: return {};
    case CodecId::kInt8: return {.with_feedback = 1 / 0.6, .error = 0.007, .payload = 126e6};
    case CodecId::kInt4: return {.with_feedback = 2.0, .error = 0.11, .payload = 65e6};
    case CodecId::kInt4E3m0: return {.with_feedback = 2.0, .payload = 65e6};
    case CodecId::kInt2: return {.payload = 36e6};
    case CodecId::kTopK64: return {.encode = 1 / 0.15, .with_feedback = 1 / 0.15, .payload = 2.5e6};
    case CodecId::kTopK128: return {.encode = 1 / 0.15, .with_feedback = 1 / 0.15};
  }
  std::abort();
}

void require(bool ok) {
  if (!ok) std::abort();
}

void force_path_named(const std::string& name) {
  if (name.empty()) return;
  for (const codec::Path path : codec::paths_of_this_cpu()) {
    if (codec::name_of(path) == name) return codec::force_path(path);
  }
  std::fprintf(stderr, "this CPU has no path \"%s\"\n", name.c_str());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t n = std::stoul(bench::argument(argc, argv, "--elements", "124400000"));
  const std::size_t pairs = std::stoul(bench::argument(argc, argv, "--pairs", "10"));
  const std::string only = bench::argument(argc, argv, "--only", "");
  const std::string operations = "," + bench::argument(argc, argv, "--operations", "") + ",";
  force_path_named(bench::argument(argc, argv, "--path", ""));

  const std::vector<float> input = normal_vector(n, 1e-3F, 1);
  const std::vector<float> other = normal_vector(n, 1e-3F, 2);
  std::vector<float> copy(n);
  std::vector<float> output(n);
  const auto memcpy_input = [&] { std::memcpy(copy.data(), input.data(), n * sizeof(float)); };

  bench::Report report("A: memcpy of " + std::to_string(n) + " float32; B: codec, path " +
                       std::string(codec::name_of(codec::path_in_use())));
  for (std::uint8_t number = 0; number <= static_cast<std::uint8_t>(CodecId::kTopK128); ++number) {
    const Codec& codec = codec_for(static_cast<CodecId>(number));
    if (!only.empty() && only != codec.name()) continue;
    const Limits limits = limits_of(codec.id());
    const auto time = [&](const std::string& what, double limit, auto&& operation) {
      const std::string name = std::string(codec.name()) + " " + what;
      if (operations == ",," || operations.find("," + what + ",") != std::string::npos) {
        report.add(name, bench::interleave(pairs, memcpy_input, [&] { require(operation()); }), limit);
      }
    };
    std::vector<std::byte> space(codec.encoded_size(n));
    time("encode", limits.encode, [&] { return codec.encode(input, space).has_value(); });
    time("encode_difference", 0, [&] { return codec.encode_difference(input, other, space).has_value(); });
    std::fill(output.begin(), output.end(), 0.0F);  // the residual
    const Feedback feedback{output, output};
    time("encode_with_feedback", limits.with_feedback,
         [&] { return codec.encode_with_feedback(input, feedback, space).has_value(); });
    // As the data plane does: a chunk's payload lies in a buffer that was just used.
    time("encode_with_feedback_by_chunks", 0, [&] {
      for (std::size_t first = 0; first < n; first += kChunk) {
        const std::size_t count = std::min(kChunk, n - first);
        const auto part = std::span(output).subspan(first, count);
        const auto payload = std::span(space).first(codec.encoded_size(count));
        if (!codec.encode_with_feedback(std::span(input).subspan(first, count), {part, part}, payload)) return false;
      }
      return true;
    });
    time("encode_difference_with_feedback", 0,
         [&] { return codec.encode_difference_with_feedback(input, other, feedback, space).has_value(); });
    const std::vector<std::byte> bytes = encoded(codec, input);
    time("decode", limits.decode, [&] { return codec.decode(bytes, output).ok(); });
    time("decode_scaled", 0, [&] { return codec.decode_scaled(bytes, 0.5F, output).ok(); });
    time("decode_accumulate", limits.accumulate, [&] { return codec.decode_accumulate(bytes, 0.5F, output).ok(); });
    const std::string prefix = std::string(codec.name()) + " ";
    report.add_figure(prefix + "payload", static_cast<double>(bytes.size()), "bytes",
                      limits.payload * static_cast<double>(n) / 124.4e6);
    for (const float scale : {1.0F, 1e-6F, 1e4F}) {
      char what[40];
      std::snprintf(what, sizeof(what), "%serror, normal x %g", prefix.c_str(), static_cast<double>(scale));
      const double error = relative_rms_error(codec, normal_vector(1 << 20, scale, 3));
      report.add_figure(what, error, "relative RMS", limits.error);
    }
  }
  return bench::finish(report, argc, argv);
}
