// Codecs turn float32 elements into bytes for the wire and back.
//
// Every codec gives the same bytes on every CPU: fixed lane order, no fused multiply-add, scalar and
// vector paths held to the same golden bytes; the caller's rounding and denormal modes do not matter. The layouts
// are in plugin/PROTOCOL.md ("Codecs"). Threads: codecs are stateless and shared.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "collab/status.h"
#include "collab/types.h"

namespace collab {

class Codec {
 public:
  virtual ~Codec() = default;
  [[nodiscard]] virtual CodecId id() const = 0;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual bool lossless() const = 0;
  // Bytes for `elements` float32; blocks restart at element 0, the last block may be short.
  [[nodiscard]] virtual std::size_t encoded_size(std::size_t elements) const = 0;

  // out.size() == encoded_size(in.size()). Returns false when an input is NaN or infinite; `out` is then
  // unspecified and must not be sent.
  [[nodiscard]] virtual bool encode(std::span<const float> in, std::span<std::byte> out) const = 0;
  // The same for the elementwise difference a - b (one float32 rounding), in one pass over memory.
  [[nodiscard]] virtual bool encode_difference(std::span<const float> a, std::span<const float> b,
                                               std::span<std::byte> out) const = 0;
  // Refuses a wrong length and values no encoder writes (NaN, infinity, a negative or non-finite scale). After a
  // refusal part of the output has been written: it must not be used.
  virtual Status decode(std::span<const std::byte> in, std::span<float> out) const = 0;
  // acc[i] = acc[i] + scale * decoded[i], two roundings; one pass.
  virtual Status decode_accumulate(std::span<const std::byte> in, float scale, std::span<float> acc) const = 0;
  // out[i] = scale * decoded[i]: the first term of a sum.
  virtual Status decode_scaled(std::span<const std::byte> in, float scale, std::span<float> out) const = 0;
};

[[nodiscard]] const Codec& codec_for(CodecId id);
[[nodiscard]] Result<CodecId> codec_from_name(std::string_view name);  // "fp32", "bf16", "fp16", "int8"

}  // namespace collab
