#include "collab/codec.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "core/base/float_environment.h"
#include "core/codec/kernels.h"

namespace collab {
namespace {

struct Description {
  CodecId id;
  std::string_view name;
  bool lossless;
  std::string_view rule;  // what every block of a payload keeps to, for messages
};

constexpr std::array<Description, 4> kCodecs = {{
    {CodecId::kFp32, "fp32", true, "finite float32 values"},
    {CodecId::kBf16, "bf16", false, "finite bfloat16 values"},
    {CodecId::kFp16, "fp16", false, "an exponent in [-113, 126] and finite values that fill it"},
    {CodecId::kInt8, "int8", false, "a normal, positive scale and values in [-127, 127] that fill it"},
}};

// The codecs differ in their block format only: lengths, checks and messages are the same for all.
class BlockCodec final : public Codec {
 public:
  explicit BlockCodec(const Description& description)
      : description_(description), layout_(codec::layout_of(description.id)) {}

  CodecId id() const override { return description_.id; }
  std::string_view name() const override { return description_.name; }
  bool lossless() const override { return description_.lossless; }
  std::size_t encoded_size(std::size_t elements) const override {
    return elements * layout_.value_bytes + blocks(elements) * layout_.scale_bytes;
  }

  bool encode(std::span<const float> in, std::span<std::byte> out) const override {
    COLLAB_CHECK(out.size() == encoded_size(in.size()), "the output of encode() must be encoded_size() long");
    const FloatEnvironment ieee;
    return kernels().encode(in.data(), in.size(), out.data());
  }

  bool encode_difference(std::span<const float> a, std::span<const float> b, std::span<std::byte> out) const override {
    COLLAB_CHECK(a.size() == b.size(), "encode_difference() takes two vectors of one length");
    COLLAB_CHECK(out.size() == encoded_size(a.size()), "the output of encode_difference() must be encoded_size() long");
    const FloatEnvironment ieee;
    return kernels().encode_difference(a.data(), b.data(), a.size(), out.data());
  }

  Status decode(std::span<const std::byte> in, std::span<float> out) const override {
    COLLAB_RETURN_IF_ERROR(check_length(in, out.size()));
    const FloatEnvironment ieee;
    return verdict(in, out.size(), kernels().decode(in.data(), out.size(), out.data()));
  }

  Status decode_accumulate(std::span<const std::byte> in, float scale, std::span<float> acc) const override {
    COLLAB_RETURN_IF_ERROR(check_length(in, acc.size()));
    const FloatEnvironment ieee;
    return verdict(in, acc.size(), kernels().decode_accumulate(in.data(), acc.size(), scale, acc.data()));
  }

  Status decode_scaled(std::span<const std::byte> in, float scale, std::span<float> out) const override {
    COLLAB_RETURN_IF_ERROR(check_length(in, out.size()));
    const FloatEnvironment ieee;
    return verdict(in, out.size(), kernels().decode_scaled(in.data(), out.size(), scale, out.data()));
  }

 private:
  [[nodiscard]] const codec::Kernels& kernels() const { return codec::kernels_in_use().of(description_.id); }

  [[nodiscard]] static std::size_t blocks(std::size_t elements) {
    return elements / codec::kBlockOfScale + (elements % codec::kBlockOfScale == 0 ? 0 : 1);
  }

  Status check_length(std::span<const std::byte> in, std::size_t elements) const {
    if (in.size() == encoded_size(elements)) return {};
    return corrupt(std::string(description_.name) + " payload of " + std::to_string(elements) + " elements: expected " +
                   std::to_string(encoded_size(elements)) + " bytes, got " + std::to_string(in.size()));
  }

  // `bad_block` is the first block no encoder writes, or kAllValid.
  Status verdict(std::span<const std::byte> in, std::size_t elements, std::size_t bad_block) const {
    if (bad_block == codec::kAllValid) return {};
    const std::size_t first = bad_block * codec::kBlockOfScale;
    const std::size_t last = std::min(elements, first + codec::kBlockOfScale) - 1;
    std::string came;
    if (layout_.scale_bytes > 0) {
      came = ", got a block with scale bytes";
      for (std::size_t i = 0; i < layout_.scale_bytes; ++i) {
        const std::byte byte = in[elements * layout_.value_bytes + bad_block * layout_.scale_bytes + i];
        std::array<char, 8> text{};
        std::snprintf(text.data(), text.size(), " %02x", static_cast<unsigned>(byte));
        came += text.data();
      }
    }
    return corrupt(std::string(description_.name) + " payload of " + std::to_string(elements) + " elements, elements " +
                   std::to_string(first) + " to " + std::to_string(last) + ": expected " +
                   std::string(description_.rule) + came + "; no encoder writes this");
  }

  Description description_;
  codec::Layout layout_;
};

}  // namespace

const Codec& codec_for(CodecId id) {
  static const std::array<BlockCodec, 4> codecs = {BlockCodec(kCodecs[0]), BlockCodec(kCodecs[1]),
                                                   BlockCodec(kCodecs[2]), BlockCodec(kCodecs[3])};
  for (const BlockCodec& codec : codecs) {
    if (codec.id() == id) return codec;
  }
  panic("no codec with this number", __FILE__, __LINE__);
}

Result<CodecId> codec_from_name(std::string_view name) {
  std::string known;
  for (const Description& description : kCodecs) {
    if (description.name == name) return description.id;
    known += (known.empty() ? "" : ", ") + std::string(description.name);
  }
  return invalid_argument("unknown codec \"" + std::string(name) + "\": expected one of " + known);
}

}  // namespace collab
