// Codecs against memcpy, one thread, in DRAM: A is memcpy of the float32 input, B one operation of one codec.
//
//   codec_bench [--elements N] [--pairs N] [--path scalar|baseline|avx2|avx512] [--only CODEC] [--json FILE]
//
// Exit status 1 when a limit is missed: encode and decode may take twice memcpy's time, and int8's relative error may
// be 0.8 % on normally distributed numbers of any size.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

double relative_rms_error(const Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(codec.encoded_size(values.size()));
  std::vector<float> back(values.size());
  if (!codec.encode(values, bytes) || !codec.decode(bytes, back).ok()) return INFINITY;
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = double{values[i]} - double{back[i]};
    error += difference * difference;
    norm += double{values[i]} * double{values[i]};
  }
  return std::sqrt(error / norm);
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
  force_path_named(bench::argument(argc, argv, "--path", ""));

  const std::vector<float> input = normal_vector(n, 1e-3F, 1);
  const std::vector<float> other = normal_vector(n, 1e-3F, 2);
  std::vector<float> copy(n);
  std::vector<float> output(n);
  const auto memcpy_input = [&] { std::memcpy(copy.data(), input.data(), n * sizeof(float)); };

  bench::Report report("A: memcpy of " + std::to_string(n) + " float32; B: codec, path " +
                       std::string(codec::name_of(codec::path_in_use())));
  for (const char* name : {"fp32", "bf16", "fp16", "int8"}) {
    if (!only.empty() && only != name) continue;
    const Codec& codec = codec_for(*codec_from_name(name));
    std::vector<std::byte> bytes(codec.encoded_size(n));
    const double limit = codec.lossless() ? 0 : 2.0;
    const std::string prefix = std::string(name) + " ";
    report.add(prefix + "encode", bench::interleave(pairs, memcpy_input, [&] { require(codec.encode(input, bytes)); }),
               limit);
    report.add(prefix + "encode_difference",
               bench::interleave(pairs, memcpy_input, [&] { require(codec.encode_difference(input, other, bytes)); }),
               0);
    report.add(prefix + "decode",
               bench::interleave(pairs, memcpy_input, [&] { require(codec.decode(bytes, output).ok()); }), limit);
    report.add(prefix + "decode_scaled",
               bench::interleave(pairs, memcpy_input, [&] { require(codec.decode_scaled(bytes, 0.5F, output).ok()); }),
               0);
    report.add(
        prefix + "decode_accumulate",
        bench::interleave(pairs, memcpy_input, [&] { require(codec.decode_accumulate(bytes, 0.5F, output).ok()); }), 0);
    report.add_figure(prefix + "payload", static_cast<double>(bytes.size()), "bytes", 0);
    for (const float scale : {1.0F, 1e-6F, 1e4F}) {
      char what[40];
      std::snprintf(what, sizeof(what), "%serror, normal x %g", prefix.c_str(), static_cast<double>(scale));
      const double error = relative_rms_error(codec, normal_vector(1 << 20, scale, 3));
      report.add_figure(what, error, "relative RMS", codec.id() == CodecId::kInt8 ? 0.008 : 0);
    }
  }
  return bench::finish(report, argc, argv);
}
