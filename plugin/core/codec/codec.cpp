#include "collab/codec.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "core/base/float_environment.h"
#include "core/codec/kernels.h"

namespace collab {
namespace {

struct Description {
  CodecId id;
  bool lossless;
  std::string_view rule;  // the rule for each block of a payload, for messages
};

constexpr std::array<Description, static_cast<std::size_t>(kLastCodec) + 1> kCodecs = {{
    {CodecId::kFp32, true, "finite float32 values"},
    {CodecId::kBf16, false, "finite bfloat16 values"},
    {CodecId::kFp16, false, "an exponent in [-113, 126] and finite values that fill it"},
    {CodecId::kInt8, false, "a normal, positive scale and values in [-127, 127] that fill it"},
    {CodecId::kInt4, false, "a normal scale and values that reach -8"},
    {CodecId::kInt4E3m0, false, "a normal, positive scale, values that reach it and no negative zero"},
    {CodecId::kInt2, false, "a normal, positive scale"},
    {CodecId::kTopK64, false, "a count, two ordered levels and places within the group"},
    {CodecId::kTopK128, false, "a count, two ordered levels and places within the group"},
}};

// The codecs differ in their kernels only: lengths, checks and messages are the same for all.
class KernelCodec final : public Codec {
 public:
  explicit KernelCodec(const Description& description) : description_(description) {}

  CodecId id() const override { return description_.id; }
  std::string_view name() const override { return name_of(description_.id); }
  bool lossless() const override { return description_.lossless; }
  bool fixed_size() const override { return kernels().fixed_size; }
  std::size_t encoded_size(std::size_t elements) const override { return kernels().encoded_size(elements); }

  std::optional<std::size_t> encode(std::span<const float> in, std::span<std::byte> out) const override {
    check_output(in, out);
    const FloatEnvironment ieee;
    return length(kernels().encode(in.data(), in.size(), out.data()));
  }

  std::optional<std::size_t> encode_difference(std::span<const float> a, std::span<const float> b,
                                               std::span<std::byte> out) const override {
    check_output(a, out);
    COLLAB_CHECK(a.size() == b.size(), "encode_difference() takes two vectors of one length");
    const FloatEnvironment ieee;
    return length(kernels().encode_difference(a.data(), b.data(), a.size(), out.data()));
  }

  std::optional<std::size_t> encode_with_feedback(std::span<const float> in, Feedback feedback,
                                                  std::span<std::byte> out) const override {
    check_output(in, out);
    check_feedback(in, feedback);
    const FloatEnvironment ieee;
    return length(kernels().encode_with_feedback(in.data(), feedback.residual.data(), in.size(), out.data(),
                                                 feedback.next.data()));
  }

  std::optional<std::size_t> encode_difference_with_feedback(std::span<const float> a, std::span<const float> b,
                                                             Feedback feedback,
                                                             std::span<std::byte> out) const override {
    check_output(a, out);
    check_feedback(a, feedback);
    COLLAB_CHECK(a.size() == b.size(), "encode_difference_with_feedback() takes two vectors of one length");
    const FloatEnvironment ieee;
    return length(kernels().encode_difference_with_feedback(a.data(), b.data(), feedback.residual.data(), a.size(),
                                                            out.data(), feedback.next.data()));
  }

  Status decode(std::span<const std::byte> in, std::span<float> out) const override {
    COLLAB_RETURN_IF_ERROR(check_length(in, out.size()));
    const FloatEnvironment ieee;
    return verdict(in, out.size(), kernels().decode(in.data(), in.size(), out.size(), out.data()));
  }

  Status decode_accumulate(std::span<const std::byte> in, float scale, std::span<float> acc) const override {
    COLLAB_RETURN_IF_ERROR(check_length(in, acc.size()));
    const FloatEnvironment ieee;
    return verdict(in, acc.size(), kernels().decode_accumulate(in.data(), in.size(), acc.size(), scale, acc.data()));
  }

  Status decode_scaled(std::span<const std::byte> in, float scale, std::span<float> out) const override {
    COLLAB_RETURN_IF_ERROR(check_length(in, out.size()));
    const FloatEnvironment ieee;
    return verdict(in, out.size(), kernels().decode_scaled(in.data(), in.size(), out.size(), scale, out.data()));
  }

 private:
  [[nodiscard]] const codec::Kernels& kernels() const { return codec::kernels_in_use().of(description_.id); }

  static std::optional<std::size_t> length(std::size_t written) {
    return written == codec::kNotFinite ? std::nullopt : std::optional(written);
  }

  void check_output(std::span<const float> in, std::span<std::byte> out) const {
    COLLAB_CHECK(out.size() == encoded_size(in.size()), "an encoder's output must be encoded_size() long");
  }
  static void check_feedback(std::span<const float> in, Feedback feedback) {
    COLLAB_CHECK(feedback.residual.size() == in.size() && feedback.next.size() == in.size(),
                 "error feedback must be as long as the input");
  }

  [[nodiscard]] std::string subject(std::size_t elements) const {
    return std::string(name()) + " payload of " + std::to_string(elements) + " elements";
  }

  Status check_length(std::span<const std::byte> in, std::size_t elements) const {
    const std::size_t bound = encoded_size(elements);
    if (fixed_size() ? in.size() == bound : in.size() <= bound) return {};
    return corrupt(subject(elements) + ": expected " + (fixed_size() ? "" : "at most ") + std::to_string(bound) +
                   " bytes, got " + std::to_string(in.size()) + " [round.payload-size]");
  }

  // `bad_block`: the first block that no encoder writes, the number of blocks if bytes are left over, or kAllValid.
  Status verdict(std::span<const std::byte> in, std::size_t elements, std::size_t bad_block) const {
    if (bad_block == codec::kAllValid) return {};
    const codec::Kernels& kernel = kernels();
    const std::size_t blocks = elements / kernel.block + (elements % kernel.block == 0 ? 0 : 1);
    if (bad_block == blocks) {
      return corrupt(subject(elements) + ": expected fewer bytes than the " + std::to_string(in.size()) +
                     " that came; no encoder writes this [round.payload-long]");
    }
    const std::size_t first = bad_block * kernel.block;
    const std::size_t last = std::min(elements, first + kernel.block) - 1;
    std::string came;
    if (kernel.scale_bytes > 0) {
      came = ", got a block with scale bytes";
      for (const std::byte byte : in.last((blocks - bad_block) * kernel.scale_bytes).first(kernel.scale_bytes)) {
        std::array<char, 8> text{};
        std::snprintf(text.data(), text.size(), " %02x", static_cast<unsigned>(byte));
        came += text.data();
      }
    }
    return corrupt(subject(elements) + ", elements " + std::to_string(first) + " to " + std::to_string(last) +
                   ": expected " + std::string(description_.rule) + came +
                   "; no encoder writes this [round.payload-malformed]");
  }

  Description description_;
};

template <std::size_t... kIndex>
std::array<KernelCodec, sizeof...(kIndex)> all_codecs(std::index_sequence<kIndex...> /*all*/) {
  return {KernelCodec(kCodecs[kIndex])...};
}

}  // namespace

const Codec& codec_for(CodecId id) {
  static const auto codecs = all_codecs(std::make_index_sequence<kCodecs.size()>());
  for (const KernelCodec& codec : codecs) {
    if (codec.id() == id) return codec;
  }
  panic("no codec with this number", __FILE__, __LINE__);
}

bool needs_error_feedback(CodecId id) {
  switch (id) {
    case CodecId::kFp32:
    case CodecId::kBf16:
    case CodecId::kFp16: return false;
    case CodecId::kInt8:
    case CodecId::kInt4:
    case CodecId::kInt4E3m0:
    case CodecId::kInt2:
    case CodecId::kTopK64:
    case CodecId::kTopK128: return true;
  }
  panic("no codec with this number", __FILE__, __LINE__);
}

}  // namespace collab
