// What codec.h promises: sizes, errors, what is refused, how exact the numbers come back.
#include "collab/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/unit/codec/samples.h"

namespace collab {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

std::vector<std::byte> encoded(const Codec& codec, const std::vector<float>& values) {
  return payload_of(codec, values).value();
}

std::vector<float> there_and_back(const Codec& codec, const std::vector<float>& values) {
  std::vector<float> back(values.size());
  const Status status = codec.decode(encoded(codec, values), back);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return back;
}

double relative_rms_error(const std::vector<float>& values, const std::vector<float>& back) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    error += (double{values[i]} - double{back[i]}) * (double{values[i]} - double{back[i]});
    norm += double{values[i]} * double{values[i]};
  }
  return std::sqrt(error / norm);
}

std::string refusal(CodecId id, std::vector<std::byte> payload, std::size_t elements) {
  std::vector<float> out(elements);
  const Status status = codec_for(id).decode(payload, out);
  EXPECT_EQ(status.code() == StatusCode::kCorrupt, !status.ok());
  return status.message();
}

TEST(Codec, IsFoundByNameAndNumber) {
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    EXPECT_EQ(codec.id(), id);
    const Result<CodecId> found = codec_from_name(codec.name());
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, id);
    EXPECT_EQ(codec.lossless(), id == CodecId::kFp32);
    EXPECT_EQ(codec.fixed_size(), id != CodecId::kTopK64 && id != CodecId::kTopK128);
  }
  const Result<CodecId> unknown = codec_from_name("int9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("\"int9\""));
  EXPECT_THAT(unknown.status().message(), HasSubstr("fp32, bf16, fp16, int8, int4, int4-e3m0, int2, topk64, topk128"));
}

TEST(Codec, BothWaysHaveOneNameOrTwo) {
  for (const Codecs codecs : {Codecs(CodecId::kInt8), Codecs(CodecId::kTopK64, CodecId::kInt8)}) {
    const Result<Codecs> found = codecs_from_name(name_of(codecs));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, codecs);
  }
  EXPECT_EQ(name_of(Codecs(CodecId::kInt4, CodecId::kInt8)), "int4/int8");
  for (const std::string_view text : {"", "/", "int8/", "/int8", "int8/int9", "int4/int8/fp16"}) {
    EXPECT_FALSE(codecs_from_name(text).ok()) << text;
  }
}

TEST(Codec, SizesAreAsTheLayoutSays) {
  EXPECT_EQ(codec_for(CodecId::kFp32).encoded_size(1025), 4100U);
  EXPECT_EQ(codec_for(CodecId::kBf16).encoded_size(1025), 2050U);
  EXPECT_EQ(codec_for(CodecId::kFp16).encoded_size(1025), 2050U + 5);
  EXPECT_EQ(codec_for(CodecId::kInt8).encoded_size(1025), 1025U + 10);
  for (const CodecId id : kAllCodecs) EXPECT_EQ(codec_for(id).encoded_size(0), 0U);
  EXPECT_EQ(codec_for(CodecId::kInt4).encoded_size(1025), 9U * 66);
  EXPECT_EQ(codec_for(CodecId::kInt4E3m0).encoded_size(1025), 9U * 66);
  EXPECT_EQ(codec_for(CodecId::kInt2).encoded_size(1025), 17U * 18);
  EXPECT_EQ(codec_for(CodecId::kTopK64).encoded_size(4096), 5U + 16 + 40 + 24);
  EXPECT_EQ(codec_for(CodecId::kTopK128).encoded_size(2 * 4096 + 1), 2U * (5 + 32 + 64 + 47) + 5 + 1 + 1 + 1);
  EXPECT_LE(codec_for(CodecId::kInt8).encoded_size(124'400'000), 126'000'000U);
  EXPECT_LE(codec_for(CodecId::kInt4).encoded_size(124'400'000), 65'000'000U);
  EXPECT_LE(codec_for(CodecId::kInt2).encoded_size(124'400'000), 36'000'000U);
}

TEST(Codec, Fp32IsLosslessBitForBit) {
  Prng random(11);
  const std::vector<float> values = finite_bits(random, 5000);
  EXPECT_EQ(bits_of(there_and_back(codec_for(CodecId::kFp32), values)), bits_of(values));
}

TEST(Codec, NanAndInfinityAreSeenWhereverTheyAre) {
  const std::size_t n = 600;
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    std::vector<std::byte> bytes(codec.encoded_size(n));
    on_every_path([&](codec::Path) {
      for (std::size_t at = 0; at < n; ++at) {
        std::vector<float> values(n, 1.0F);
        const std::vector<float> ones(n, 1.0F);
        values[at] = at % 3 == 0 ? kNan : at % 3 == 1 ? kInf : -kInf;
        ASSERT_FALSE(codec.encode(values, bytes)) << codec.name() << " at " << at;
        ASSERT_FALSE(codec.encode_difference(values, ones, bytes)) << codec.name() << " at " << at;
        ASSERT_FALSE(codec.encode_difference(ones, values, bytes)) << codec.name() << " at " << at;
        values[at] = -kMax;
        std::vector<float> large(n, 1.0F);
        large[at] = kMax;
        ASSERT_TRUE(codec.encode(values, bytes)) << codec.name() << " at " << at;
        ASSERT_FALSE(codec.encode_difference(values, large, bytes)) << codec.name() << " overflows at " << at;
      }
    });
  }
}

TEST(Codec, DifferenceIsEncodedAsIfItHadBeenStored) {
  Prng random(12);
  const std::vector<float> a = normal_vector(random, 2000, 1.0);
  const std::vector<float> b = normal_vector(random, 2000, 1.0);
  std::vector<float> difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    std::vector<std::byte> bytes(codec.encoded_size(a.size()));
    const std::optional<std::size_t> size = codec.encode_difference(a, b, bytes);
    ASSERT_TRUE(size);
    bytes.resize(*size);
    EXPECT_EQ(bytes, encoded(codec, difference)) << codec.name();
  }
}

TEST(Codec, ScaledAndAccumulatedDecodingRoundsTwice) {
  Prng random(13);
  const std::vector<float> values = normal_vector(random, 1300, 1e-3);
  const std::vector<float> start = normal_vector(random, 1300, 1e-3);
  const float scale = 1.0F / 3.0F;
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    const std::vector<std::byte> payload = encoded(codec, values);
    const std::vector<float> back = there_and_back(codec, values);
    std::vector<float> scaled(values.size());
    std::vector<float> acc = start;
    ASSERT_TRUE(codec.decode_scaled(payload, scale, scaled).ok());
    ASSERT_TRUE(codec.decode_accumulate(payload, scale, acc).ok());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const volatile float product = scale * back[i];  // volatile: rounded on its own
      const volatile float sum = start[i] + product;
      ASSERT_EQ(scaled[i], product) << codec.name() << " " << i;
      ASSERT_EQ(acc[i], sum) << codec.name() << " " << i;
    }
  }
}

TEST(Codec, ErrorsKeepToTheirBounds) {
  struct Bound {
    CodecId id;
    double rms;
    double element;  // of the element itself for floating formats, else of the 256 elements' largest
  };
  for (const Bound& bound : {Bound{CodecId::kBf16, 0.0018, 0x1.0p-8}, Bound{CodecId::kFp16, 0.00023, 0x1.0p-11},
                             Bound{CodecId::kInt8, 0.0070, 0.5 / 127 * (1 + 0x1.0p-7) * (1 + 1e-6)},
                             // Opposite to the extreme the last step is missing.
                             Bound{CodecId::kInt4, 0.11, 1.0 / 8 * (1 + 0x1.0p-7) * (1 + 1e-6)},
                             Bound{CodecId::kInt4E3m0, 0.20, 0.25 * (1 + 0x1.0p-7)}}) {
    for (const double scale : {1.0, 1e-6, 3e-6, 1e4, 1e-30, 1e30}) {
      Prng random(14);
      const std::vector<float> values = normal_vector(random, 100'000, scale);
      const std::vector<float> back = there_and_back(codec_for(bound.id), values);
      EXPECT_LE(relative_rms_error(values, back), bound.rms) << codec_for(bound.id).name() << " x " << scale;
      for (std::size_t block = 0; block < values.size(); block += 256) {
        const std::size_t end = std::min(values.size(), block + 256);
        double largest = 0;
        for (std::size_t i = block; i < end; ++i) largest = std::max(largest, std::abs(double{values[i]}));
        for (std::size_t i = block; i < end; ++i) {
          const bool floating = bound.id == CodecId::kBf16 || bound.id == CodecId::kFp16;
          const double of = floating ? std::abs(double{values[i]}) : largest;
          ASSERT_LE(std::abs(double{values[i]} - double{back[i]}), bound.element * of) << values[i];
        }
      }
    }
  }
}

TEST(Codec, ZerosAndTheLargestNumbersSurvive) {
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    EXPECT_EQ(there_and_back(codec, std::vector<float>(700, 0.0F)), std::vector<float>(700, 0.0F)) << codec.name();
    const std::vector<float> back = there_and_back(codec, {kMax, -kMax, 0.0F});
    for (const float value : back) EXPECT_TRUE(std::isfinite(value)) << codec.name();
    EXPECT_GT(back[0], (id == CodecId::kInt2 ? 0.9F : 0.99F) * kMax * (id == CodecId::kInt4 ? 7.0F / 8 : 1))
        << codec.name();
    EXPECT_LE(back[1], codec.fixed_size() ? -back[0] : 0.0F) << codec.name();  // top-k keeps one element of three
  }
  // Denormals: fp16's scale reaches them, int8's smallest step is 2^-126.
  const float denormal = 0x1.0p-149F;
  EXPECT_EQ(there_and_back(codec_for(CodecId::kFp16), {denormal, -3 * denormal}),
            (std::vector<float>{denormal, -3 * denormal}));
  EXPECT_EQ(there_and_back(codec_for(CodecId::kInt8), {denormal, 0x1.8p-126F}),
            (std::vector<float>{0.0F, 0x1.0p-125F}));
}

TEST(Codec, RefusesAWrongLength) {
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    if (!codec.fixed_size()) continue;
    std::vector<std::byte> payload = encoded(codec, std::vector<float>(300, 1.0F));
    const std::string expected = std::to_string(payload.size());
    payload.push_back(std::byte{0});
    EXPECT_THAT(refusal(id, payload, 300), HasSubstr("expected " + expected + " bytes, got "));
    const auto shorter = std::span<const std::byte>(payload).first(payload.size() - 2);
    EXPECT_THAT(refusal(id, {shorter.begin(), shorter.end()}, 300), HasSubstr("expected " + expected + " bytes, got "));
    EXPECT_NE(refusal(id, {}, 1), "");
    EXPECT_EQ(refusal(id, {}, 0), "");
  }
}

TEST(Codec, RefusesWhatNoEncoderWrites) {
  const auto with = [](CodecId id, std::vector<std::pair<std::size_t, unsigned>> changes) {
    std::vector<std::byte> payload = encoded(codec_for(id), std::vector<float>(300, 1.0F));
    for (const auto& [at, byte] : changes) payload[at] = static_cast<std::byte>(byte);
    return refusal(id, payload, 300);
  };
  const auto fp32 = CodecId::kFp32, bf16 = CodecId::kBf16, fp16 = CodecId::kFp16, int8 = CodecId::kInt8;
  EXPECT_THAT(with(fp32, {{3, 0x7F}, {2, 0x80}}), HasSubstr("elements 0 to 255: expected finite"));   // infinity
  EXPECT_THAT(with(fp32, {{1199, 0xFF}, {1198, 0xC0}}), HasSubstr("elements 256 to 299"));            // NaN, the tail
  EXPECT_THAT(with(bf16, {{0, 0x80}, {1, 0xFF}}), HasSubstr("expected finite bfloat16"));             // -infinity
  EXPECT_THAT(with(bf16, {{598, 0xC0}, {599, 0x7F}}), HasSubstr("elements 256 to 299"));              // NaN
  EXPECT_THAT(with(fp16, {{1, 0x7C}}), HasSubstr("scale bytes 0e"));                                  // infinity
  EXPECT_NE(with(fp16, {{0, 0x01}, {1, 0x78}}), "");                                                  // above 2^15
  EXPECT_NE(with(fp16, {{600, 0x7F}}), "");                                                           // k = 127
  EXPECT_NE(with(fp16, {{600, 0x8E}}), "");                                                           // k = -114
  EXPECT_NE(with(fp16, {{600, 0x8F}, {1, 0x78}}), "");                                                // 2^128
  EXPECT_EQ(with(fp16, {{600, 0x8F}}), "");                                                           // 2^127
  EXPECT_THAT(with(int8, {{0, 0x80}}), HasSubstr("elements 0 to 255: expected a normal, positive"));  // q = -128
  EXPECT_NE(with(int8, {{300, 0}, {301, 0}}), "");                                                    // s = 0, q != 0
  EXPECT_NE(with(int8, {{301, 0xBC}}), "");                                                           // s < 0
  EXPECT_NE(with(int8, {{300, 0x80}, {301, 0x7F}}), "");                                              // s infinite
  EXPECT_NE(with(int8, {{300, 0xC0}, {301, 0x7F}}), "");                                              // s NaN
  EXPECT_NE(with(int8, {{300, 0x02}, {301, 0x7C}}), "");                                              // 127 s overflows
  EXPECT_NE(with(int8, {{300, 0x7F}, {301, 0x00}}), "");                                              // s denormal
  std::vector<std::byte> slack = encoded(codec_for(int8), std::vector<float>(2, 1.0F));
  slack[0] = slack[1] = std::byte{100};
  EXPECT_NE(refusal(int8, slack, 2), "") << "a block that leaves its range unused";
  std::vector<std::byte> small = encoded(codec_for(fp16), std::vector<float>(1, 1.0F));
  small[1] = std::byte{0x70};
  EXPECT_NE(refusal(fp16, small, 1), "") << "a block that leaves its range unused";
}

TEST(CodecDeathTest, BuffersOfAnotherSizeAreABug) {
  std::vector<std::byte> bytes(3);
  EXPECT_DEATH((void)codec_for(CodecId::kFp32).encode(std::vector<float>(1), bytes), "encoded_size");
}

}  // namespace
}  // namespace collab
