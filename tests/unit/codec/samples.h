// Vectors that codecs are tried on, and a way to run a test on every path this CPU has.
//
// Threads: one. Ownership: plain values.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "collab/codec.h"
#include "core/base/prng.h"
#include "core/codec/kernels.h"

namespace collab {

inline constexpr CodecId kAllCodecs[] = {CodecId::kFp32, CodecId::kBf16,   CodecId::kFp16,
                                         CodecId::kInt8, CodecId::kInt4,   CodecId::kInt4E3m0,
                                         CodecId::kInt2, CodecId::kTopK64, CodecId::kTopK128};

inline std::vector<float> normal_vector(Prng& random, std::size_t n, double scale) {
  std::vector<float> values(n);
  for (float& value : values) {
    double sum = -6;  // of twelve uniforms: near enough to normal, and the same on every machine
    for (int i = 0; i < 12; ++i) sum += random.uniform();
    value = static_cast<float>(scale * sum);
  }
  return values;
}

// Finite bit patterns of any size: denormals, signed zeros, the largest values, all alike.
inline std::vector<float> finite_bits(Prng& random, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) {
    do {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
    } while (!std::isfinite(value));
    if (random.chance(0.1)) value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x807F'FFFF);
    if (random.chance(0.05)) value = random.chance(0.5) ? 0.0F : -0.0F;
    if (random.chance(0.01)) value = std::copysign(std::numeric_limits<float>::max(), value);
  }
  return values;
}

// What one operation of a codec gave: its verdict and its bytes, with a margin behind that must stay as it was.
struct CodecResult {
  bool ok = false;
  std::vector<std::byte> bytes;
  bool operator==(const CodecResult&) const = default;
};
inline constexpr std::size_t kMargin = 64;

template <typename Operation>
CodecResult result_of(std::size_t size, Operation&& operation) {
  CodecResult result;
  result.bytes.assign(size + kMargin, std::byte{0xA5});
  result.ok = operation(std::span(result.bytes).first(size));
  return result;
}

inline bool margin_untouched(const CodecResult& result) {
  const auto margin = std::span(result.bytes).last(kMargin);
  for (const std::byte byte : margin) {
    if (byte != std::byte{0xA5}) return false;
  }
  return true;
}

// The payload alone; nothing when an input is not finite.
inline std::optional<std::vector<std::byte>> payload_of(const Codec& codec, std::span<const float> values) {
  std::vector<std::byte> bytes(codec.encoded_size(values.size()));
  const std::optional<std::size_t> size = codec.encode(values, bytes);
  if (!size) return std::nullopt;
  bytes.resize(*size);
  return bytes;
}

inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!bits.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

// Runs `body` once on every path and leaves the best one in use.
template <typename Body>
void on_every_path(Body&& body) {
  for (const codec::Path path : codec::paths_of_this_cpu()) {
    codec::force_path(path);
    body(path);
  }
}

}  // namespace collab
