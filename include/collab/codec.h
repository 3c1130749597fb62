// Codecs turn float32 elements into bytes for the wire and back.
//
// Every codec gives the same bytes on every CPU: fixed lane order, no fused multiply-add, scalar and
// vector paths held to the same golden bytes; the caller's rounding and denormal modes do not matter. The layouts
// are in docs/protocol/codecs.md. Threads: codecs are stateless and shared.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collab/status.h"
#include "collab/types.h"

namespace collab {

// Error feedback: the next payload makes up for what earlier payloads left out. Both spans are as long as the input.
// They may be the same memory; then an encoder that returns nothing has spoilt it. No other memory may overlap `next`.
struct Feedback {
  std::span<const float> residual;  // what earlier payloads left out; zeros at first
  std::span<float> next;            // receives what the new payload leaves out
};

class Codec {
 public:
  virtual ~Codec() = default;
  [[nodiscard]] virtual CodecId id() const = 0;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual bool lossless() const = 0;
  // Whether a payload's length depends only on the number of elements. Otherwise it also depends on their values.
  [[nodiscard]] virtual bool fixed_size() const = 0;
  // Bytes for `elements` float32: exactly this many with fixed_size(), otherwise at most. Blocks restart at element 0,
  // and the last block may be short.
  [[nodiscard]] virtual std::size_t encoded_size(std::size_t elements) const = 0;

  // out.size() == encoded_size(in.size()). The payload is the first bytes of `out`, as many as returned. Returns
  // nothing when an input is NaN or infinite; `out` is then unspecified and must not be sent.
  [[nodiscard]] virtual std::optional<std::size_t> encode(std::span<const float> in,
                                                          std::span<std::byte> out) const = 0;
  // The same for the elementwise difference a - b (one float32 rounding), in one pass over memory.
  [[nodiscard]] virtual std::optional<std::size_t> encode_difference(std::span<const float> a, std::span<const float> b,
                                                                     std::span<std::byte> out) const = 0;
  // The same with error feedback, in one pass over memory: the payload is that of v = in + residual, or
  // v = (a - b) + residual, each operation rounded to float32; next = v - decoded payload. Returns nothing when an
  // element of v is NaN or infinite; `next` is then unspecified, too. Algorithm: Seide et al., "1-Bit Stochastic
  // Gradient Descent", Interspeech 2014.
  [[nodiscard]] virtual std::optional<std::size_t> encode_with_feedback(std::span<const float> in, Feedback feedback,
                                                                        std::span<std::byte> out) const = 0;
  [[nodiscard]] virtual std::optional<std::size_t> encode_difference_with_feedback(std::span<const float> a,
                                                                                   std::span<const float> b,
                                                                                   Feedback feedback,
                                                                                   std::span<std::byte> out) const = 0;

  // `in` is one whole payload. Refuses a wrong length, and values that no encoder writes (NaN, infinity, a scale that
  // is not finite, an index that is too high). After a refusal, part of the output may have been written: do not use
  // it.
  virtual Status decode(std::span<const std::byte> in, std::span<float> out) const = 0;
  // acc[i] = acc[i] + scale * decoded[i], two roundings; one pass. top-k leaves elements it did not keep untouched.
  virtual Status decode_accumulate(std::span<const std::byte> in, float scale, std::span<float> acc) const = 0;
  // out[i] = scale * decoded[i]: the first term of a sum. Elements top-k did not keep become +0.
  virtual Status decode_scaled(std::span<const std::byte> in, float scale, std::span<float> out) const = 0;
};

[[nodiscard]] const Codec& codec_for(CodecId id);
[[nodiscard]] std::string_view name_of(CodecId id);
[[nodiscard]] Result<CodecId> codec_from_name(std::string_view name);
// "int8", or "int4/int8" if the two directions differ.
[[nodiscard]] std::string name_of(const Codecs& codecs);
[[nodiscard]] Result<Codecs> codecs_from_name(std::string_view text);
// True for codecs of 8 bits per element or fewer: they lose so much that the next payload has to make up for it.
[[nodiscard]] bool needs_error_feedback(CodecId id);
// True if at least one direction sends only the largest elements.
[[nodiscard]] bool has_top_k(const Codecs& codecs);

}  // namespace collab
