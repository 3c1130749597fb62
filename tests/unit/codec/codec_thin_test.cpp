// What int4, int4-e3m0, int2 and top-k promise beyond the other codecs: their errors, their sizes, what they keep, what
// they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "collab/codec.h"
#include "tests/unit/codec/samples.h"

namespace collab {
namespace {

using testing::HasSubstr;

constexpr CodecId kTopK[] = {CodecId::kTopK64, CodecId::kTopK128};

std::size_t kept_of(CodecId id, std::size_t elements) {
  return (elements * (id == CodecId::kTopK64 ? 64 : 128) + 4095) / 4096;
}

std::vector<std::byte> encoded(CodecId id, const std::vector<float>& values) {
  return payload_of(codec_for(id), values).value();
}

std::vector<float> decoded(CodecId id, const std::vector<std::byte>& payload, std::size_t elements) {
  std::vector<float> back(elements, 7.0F);
  const Status status = codec_for(id).decode(payload, back);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return back;
}

std::vector<float> there_and_back(CodecId id, const std::vector<float>& values) {
  return decoded(id, encoded(id, values), values.size());
}

// The verdict on the payload of `values` with some bytes changed; empty: accepted.
std::string refusal(CodecId id, const std::vector<float>& values,
                    const std::vector<std::pair<std::size_t, unsigned>>& changes) {
  std::vector<std::byte> payload = encoded(id, values);
  for (const auto& [at, byte] : changes) payload.at(at) = static_cast<std::byte>(byte);
  std::vector<float> out(values.size());
  return codec_for(id).decode(payload, out).message();
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

TEST(ThinCodec, ErrorsOnANormalVector) {
  for (const double scale : {1.0, 1e-6, 1e4, 1e-30, 1e30}) {
    Prng random(21);
    const std::vector<float> values = normal_vector(random, 200'000, scale);
    EXPECT_LE(relative_rms_error(values, there_and_back(CodecId::kInt4, values)), 0.11) << scale;
    EXPECT_LE(relative_rms_error(values, there_and_back(CodecId::kInt4E3m0, values)), 0.195) << scale;
    EXPECT_LE(relative_rms_error(values, there_and_back(CodecId::kInt2, values)), 0.345) << scale;
    EXPECT_LE(relative_rms_error(values, there_and_back(CodecId::kTopK64, values)), 0.945) << scale;
    EXPECT_LE(relative_rms_error(values, there_and_back(CodecId::kTopK128, values)), 0.90) << scale;
  }
}

TEST(ThinCodec, Int4KeepsTheExtremeWhateverItsSign) {
  for (const float sign : {1.0F, -1.0F}) {
    std::vector<float> values(128, 0.25F);
    values[5] = sign * 8.0F;
    values[6] = sign * -8.0F;
    values[70] = sign * 3.0F;
    std::vector<float> expected(128, 0.0F);
    // Two extremes: the negative one is a step, the positive one is the step missing.
    expected[5] = sign > 0 ? 7.0F : -8.0F;
    expected[6] = sign > 0 ? -8.0F : 7.0F;
    expected[70] = sign * 3.0F;
    EXPECT_EQ(there_and_back(CodecId::kInt4, values), expected);
    values[6] = sign * -7.0F;
    expected[5] = sign * 8.0F;
    expected[6] = sign * -7.0F;
    EXPECT_EQ(there_and_back(CodecId::kInt4, values), expected);
  }
}

TEST(ThinCodec, E3m0GivesTheNearestPowerOfTwo) {
  const std::vector<float> values = {64.0F, -64.0F, 48.0F, 47.9F, -32.0F, 1.5F,
                                     -1.0F, 0.75F,  0.5F,  0.49F, -0.4F,  -0.0F};
  const std::vector<float> expected = {64.0F, -64.0F, 64.0F, 32.0F, -32.0F, 2.0F, -1.0F, 1.0F, 1.0F, 0.0F, 0.0F, 0.0F};
  const std::vector<float> back = there_and_back(CodecId::kInt4E3m0, values);
  EXPECT_EQ(back, expected);
  EXPECT_FALSE(std::signbit(back.back())) << "zero has no sign";
}

TEST(ThinCodec, Int2FitsItsScale) {
  // Elements of one size come back as they are, whatever their signs and number.
  for (const std::size_t n : {1U, 5U, 63U, 64U, 65U, 300U}) {
    std::vector<float> values(n, 0.5F);
    for (std::size_t i = 0; i < n; i += 3) values[i] = -0.5F;
    EXPECT_EQ(there_and_back(CodecId::kInt2, values), values) << n;
  }
  std::vector<float> two(64, 1.0F);
  for (std::size_t i = 0; i < 64; i += 5) two[i] = -3.0F;
  EXPECT_EQ(there_and_back(CodecId::kInt2, two), two);
  // The payload never makes the error larger than the vector, so feedback cannot run away.
  Prng random(22);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> values = finite_bits(random, 64);
    for (float& value : values) value *= 0x1.0p-64F;
    EXPECT_LE(relative_rms_error(values, there_and_back(CodecId::kInt2, values)), 1.0);
  }
}

TEST(ThinCodec, TopKKeepsTheLargest) {
  for (const CodecId id : kTopK) {
    for (const std::size_t n : {1U, 63U, 64U, 65U, 1000U, 4096U, 4097U, 9000U}) {
      Prng random(n);
      const std::vector<float> values = normal_vector(random, n, 1e-3);
      const std::vector<float> back = there_and_back(id, values);
      for (std::size_t first = 0; first < n; first += 4096) {
        const std::size_t used = std::min<std::size_t>(4096, n - first);
        std::vector<float> magnitudes;
        for (std::size_t i = first; i < first + used; ++i) magnitudes.push_back(std::abs(values[i]));
        const auto smallest_kept = magnitudes.begin() + static_cast<std::ptrdiff_t>(kept_of(id, used) - 1);
        std::ranges::nth_element(magnitudes, smallest_kept, std::greater<>());
        std::size_t kept = 0;
        for (std::size_t i = first; i < first + used; ++i) {
          EXPECT_EQ(back[i] != 0, std::abs(values[i]) >= *smallest_kept) << i;
          if (back[i] != 0) {
            EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i]));
            ++kept;
          }
        }
        EXPECT_EQ(kept, kept_of(id, used));
      }
    }
  }
}

TEST(ThinCodec, TopKOfEqualElementsKeepsTheFirst) {
  for (const CodecId id : kTopK) {
    std::vector<float> values(4096, -0.75F);
    for (std::size_t i = 0; i < 10; ++i) values[4000 + i] = 0.875F;
    const std::size_t kept = kept_of(id, 4096);
    std::vector<float> expected(4096, 0.0F);
    for (std::size_t i = 0; i < kept - 10; ++i) expected[i] = -0.75F;
    for (std::size_t i = 0; i < 10; ++i) expected[4000 + i] = 0.875F;
    EXPECT_EQ(there_and_back(id, values), expected);
    values.assign(4096, 3.0F);  // one level
    expected.assign(4096, 0.0F);
    std::fill_n(expected.begin(), kept, 3.0F);
    EXPECT_EQ(there_and_back(id, values), expected);
  }
}

TEST(ThinCodec, TopKDoesNotKeepZeros) {
  for (const CodecId id : kTopK) {
    std::vector<float> values(3 * 4096, 0.0F);
    EXPECT_EQ(encoded(id, values), std::vector<std::byte>(3)) << "a byte for each empty group";
    values[4096 + 17] = -2.5F;
    values[4096 + 3000] = 0x1.0p-127F;  // too small to be kept
    const std::vector<std::byte> payload = encoded(id, values);
    EXPECT_LE(payload.size(), 2U + 5 + 1 + 1 + 16);
    values[4096 + 3000] = 0.0F;
    EXPECT_EQ(decoded(id, payload, values.size()), values);
  }
}

TEST(ThinCodec, SizesOfTopKPayloadsAreBounded) {
  // Normal elements: the promise for 124.4 million parameters, from two million. The bound is met by one long gap.
  Prng random(23);
  const std::size_t n = 512 * 4096;
  const std::vector<float> values = normal_vector(random, n, 1.0);
  EXPECT_LE(static_cast<double>(encoded(CodecId::kTopK64, values).size()) / static_cast<double>(n) * 124.4e6, 2.5e6);
  EXPECT_LE(static_cast<double>(encoded(CodecId::kTopK128, values).size()) / static_cast<double>(n) * 124.4e6, 4.4e6);
  for (const CodecId id : kTopK) {
    std::vector<float> last(4096, 0.0F);
    std::fill_n(last.end() - static_cast<std::ptrdiff_t>(kept_of(id, 4096)), kept_of(id, 4096), 1.0F);
    EXPECT_EQ(encoded(id, last).size(), codec_for(id).encoded_size(4096));
  }
}

TEST(ThinCodec, TopKAccumulatesOnlyWhatItKept) {
  for (const CodecId id : kTopK) {
    std::vector<float> values(5000, 0.0F);
    values[4990] = 2.0F;
    std::vector<float> acc(5000, -0.0F);
    ASSERT_TRUE(codec_for(id).decode_accumulate(encoded(id, values), -0.5F, acc).ok());
    EXPECT_EQ(acc[4990], -1.0F);
    EXPECT_TRUE(std::signbit(acc[0])) << "not kept, not touched";
    ASSERT_TRUE(codec_for(id).decode_scaled(encoded(id, values), -0.5F, acc).ok());
    EXPECT_EQ(acc[4990], -1.0F);
    EXPECT_FALSE(std::signbit(acc[0]));
  }
}

TEST(ThinCodec, PackedFormatsRefuseWhatNoEncoderWrites) {
  const std::vector<float> ones(150, 1.0F);  // a block and 22 elements of int4; two blocks and 22 of int2
  const CodecId int4 = CodecId::kInt4, e3m0 = CodecId::kInt4E3m0, int2 = CodecId::kInt2;
  EXPECT_EQ(refusal(int4, ones, {}), "");
  EXPECT_THAT(refusal(int4, ones, {{64 + 22, 0x01}}), HasSubstr("elements 128 to 149"));      // behind the last
  EXPECT_THAT(refusal(int4, ones, {{64 + 21, 0x18}}), HasSubstr("expected a normal scale"));  // element 128 + 85
  EXPECT_THAT(refusal(int4, ones, {{128, 0}, {129, 0}}), HasSubstr("scale bytes 00 00"));     // s = 0, q != 0
  EXPECT_NE(refusal(int4, ones, {{128, 0}, {129, 0x80}}), "");                                // s = -0
  EXPECT_NE(refusal(int4, ones, {{128, 0x7F}, {129, 0x00}}), "");                             // s denormal
  EXPECT_NE(refusal(int4, ones, {{128, 0x00}, {129, 0x7E}}), "");                             // 8 s overflows
  EXPECT_NE(refusal(int4, ones, {{128, 0x00}, {129, 0xFE}}), "");                             // -8 s overflows
  EXPECT_NE(refusal(int4, ones, {{128, 0xC0}, {129, 0x7F}}), "");                             // s NaN
  EXPECT_EQ(refusal(int4, ones, {{129, 0x3E}}), "");                                          // the sign of s is free
  std::vector<float> one(1, 1.0F);
  EXPECT_NE(refusal(int4, one, {{0, 0x07}}), "") << "a block that leaves its range unused";

  EXPECT_EQ(refusal(e3m0, ones, {}), "");
  EXPECT_NE(refusal(e3m0, ones, {{0, 0x78}}), "");                 // negative zero
  EXPECT_NE(refusal(e3m0, ones, {{0, 0x87}}), "");                 // negative zero
  EXPECT_NE(refusal(e3m0, ones, {{64 + 22, 0x01}}), "");           // behind the last
  EXPECT_NE(refusal(e3m0, ones, {{129, 0xBF}}), "");               // s < 0
  EXPECT_NE(refusal(e3m0, ones, {{128, 0x80}, {129, 0x7F}}), "");  // s infinite
  EXPECT_NE(refusal(e3m0, ones, {{128, 0x00}, {129, 0x00}}), "");  // s = 0, values
  EXPECT_NE(refusal(e3m0, one, {{0, 0x06}}), "") << "a block that leaves its range unused";

  EXPECT_EQ(refusal(int2, ones, {}), "");
  EXPECT_THAT(refusal(int2, ones, {{32 + 6, 0x04}}), HasSubstr("elements 128 to 149"));  // behind the last
  EXPECT_NE(refusal(int2, ones, {{49, 0xBF}}), "");                                      // s < 0
  EXPECT_NE(refusal(int2, ones, {{48, 0xAB}, {49, 0x7E}}), "");                          // 3 s overflows
  EXPECT_NE(refusal(int2, ones, {{48, 0x7F}, {49, 0x00}}), "");                          // s denormal
  EXPECT_EQ(refusal(int2, ones, {{48, 0}, {49, 0}}), "");                                // a block of zeros
  EXPECT_NE(refusal(int2, ones, {{0, 1}, {48, 0}, {49, 0}}), "");                        // s = 0, q != 0
}

// 300 elements of topk64 keep 5: count, two levels of two bytes, codes of 2 bytes, low parts of 4, high parts.
TEST(ThinCodec, TopKRefusesWhatNoEncoderWrites) {
  const CodecId id = CodecId::kTopK64;
  std::vector<float> values(300, 0.0F);
  for (const std::size_t at : {0U, 10U, 50U, 51U, 299U}) values[at] = static_cast<float>(at + 1);
  const std::vector<std::byte> payload = encoded(id, values);
  // Gaps 0, 9, 39, 0, 247: low parts 0, 9, 7, 0, 23; high parts 0, 0, 1, 0, 7.
  ASSERT_EQ(payload.size(), 13U);
  EXPECT_EQ(static_cast<unsigned>(payload[0]), 5U);
  EXPECT_EQ(static_cast<unsigned>(payload[6]), 0x02U);  // the last one has the upper level
  EXPECT_EQ(static_cast<unsigned>(payload[11]), 0b0001'1011U);
  EXPECT_EQ(static_cast<unsigned>(payload[12]), 0b0001'0000U);
  EXPECT_EQ(refusal(id, values, {}), "");
  EXPECT_THAT(refusal(id, values, {{0, 6}}), HasSubstr("elements 0 to 299: expected a count"));  // more than 5
  EXPECT_NE(refusal(id, values, {{0, 4}}), "");                                                  // bytes left over
  EXPECT_THAT(refusal(id, values, {{0, 0}}), HasSubstr("fewer bytes than the 13"));
  EXPECT_NE(refusal(id, values, {{2, 0xC1}}), "");             // a negative level
  EXPECT_NE(refusal(id, values, {{1, 0x7F}, {2, 0x00}}), "");  // a denormal level
  EXPECT_NE(refusal(id, values, {{3, 0x80}, {4, 0x7F}}), "");  // an infinite level
  EXPECT_NE(refusal(id, values, {{4, 0x3F}}), "");             // the upper one below the lower one
  EXPECT_NE(refusal(id, values, {{6, 0x00}}), "");             // nobody has the upper level
  EXPECT_NE(refusal(id, values, {{5, 0xAA}}), "") << "everybody has the upper level";
  EXPECT_NE(refusal(id, values, {{6, 0x06}}), "");   // a bit behind the codes
  EXPECT_NE(refusal(id, values, {{10, 0x83}}), "");  // a bit behind the low parts
  EXPECT_NE(refusal(id, values, {{12, 0x30}}), "");  // a bit behind the high parts
  EXPECT_NE(refusal(id, values, {{12, 0x20}}), "");  // the last index is 331
  EXPECT_NE(refusal(id, values, {{12, 0x00}}), "");  // no last index
  std::vector<float> out(300);
  for (std::size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(codec_for(id).decode(std::span(payload).first(size), out).ok()) << size;
  }
  std::vector<std::byte> longer = payload;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(codec_for(id).decode(longer, out).ok());
  longer.resize(codec_for(id).encoded_size(300) + 1);
  EXPECT_THAT(codec_for(id).decode(longer, out).message(), HasSubstr("expected at most "));
}

}  // namespace
}  // namespace collab
