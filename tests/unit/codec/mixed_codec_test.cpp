// Several codecs in one vector: kept elements go at 16 bits, the others by the codec, each as if the others were not.
#include "core/codec/mixed_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/codec/samples.h"

namespace collab {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kElements = 20'000;
constexpr ElementRange kChunk{4096, 12'288};
// One reaches into the chunk, two lie in it, one reaches out of it, one is elsewhere.
const std::vector<ElementRange> kKept{{4000, 4100}, {5000, 5001}, {7000, 9000}, {12'000, 13'000}, {15'000, 16'000}};
const std::vector<ElementRange> kWhole{{0, kElements}};
constexpr CodecId kThin[] = {CodecId::kInt8, CodecId::kInt4,   CodecId::kInt4E3m0,
                             CodecId::kInt2, CodecId::kTopK64, CodecId::kTopK128};

bool is_kept(std::uint64_t element) {
  return std::ranges::any_of(kKept, [&](ElementRange r) { return r.begin <= element && element < r.end; });
}

// The chunk's elements that are kept, or the others, joined.
std::vector<float> joined(std::span<const float> values, bool kept) {
  std::vector<float> part;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_kept(kChunk.begin + i) == kept) part.push_back(values[i]);
  }
  return part;
}

std::vector<float> decoded_by(const Codec& codec, std::span<const std::byte> payload, std::size_t elements) {
  std::vector<float> values(elements);
  EXPECT_TRUE(codec.decode(payload, values).ok());
  return values;
}

class Mixed : public ::testing::TestWithParam<CodecId> {
 protected:
  [[nodiscard]] std::vector<std::byte> encoded(std::span<const float> values) {
    std::vector<std::byte> bytes(mixed_.encoded_size(kChunk));
    const auto used = mixed_.encode(kChunk, values, bytes);
    EXPECT_TRUE(used.has_value());
    bytes.resize(used.value_or(0));
    return bytes;
  }
  [[nodiscard]] std::vector<float> decoded(std::span<const std::byte> payload) {
    std::vector<float> values(kChunk.size(), 99);
    EXPECT_TRUE(mixed_.decode(kChunk, payload, values).ok());
    return values;
  }

  Prng random_{11};
  const Codec& codec_ = codec_for(GetParam());
  const Codec& fp16_ = codec_for(CodecId::kFp16);
  MixedCodec mixed_{GetParam(), kKept, kElements};
  std::vector<float> values_ = normal_vector(random_, kChunk.size(), 1e-3);
};
INSTANTIATE_TEST_SUITE_P(Codecs, Mixed, ::testing::ValuesIn(kThin),
                         [](const auto& codec) { return "codec" + std::to_string(static_cast<int>(codec.param)); });

TEST_P(Mixed, APayloadIsThatOfTheKeptElementsFollowedByThatOfTheOthers) {
  std::vector<std::byte> expected = *payload_of(fp16_, joined(values_, true));
  const std::vector<std::byte> others = *payload_of(codec_, joined(values_, false));
  const std::size_t border = expected.size();
  expected.insert(expected.end(), others.begin(), others.end());
  const std::vector<std::byte> payload = encoded(values_);
  EXPECT_EQ(payload, expected);
  const std::vector<float> result = decoded(payload);
  EXPECT_EQ(joined(result, true), decoded_by(fp16_, std::span(payload).first(border), joined(values_, true).size()));
  EXPECT_EQ(joined(result, false), decoded_by(codec_, others, joined(values_, false).size()));
}

TEST_P(Mixed, ChunksOfOneSortAreThatCodecsAlone) {
  const std::vector<float> values = normal_vector(random_, 1000, 1e-3);
  std::vector<std::byte> bytes(mixed_.encoded_size({16'000, 17'000}));
  const auto used = mixed_.encode({16'000, 17'000}, values, bytes);
  ASSERT_TRUE(used);
  bytes.resize(*used);
  EXPECT_EQ(bytes, *payload_of(codec_, values));
  bytes.resize(mixed_.encoded_size({15'000, 16'000}));
  ASSERT_TRUE(mixed_.encode({15'000, 16'000}, values, bytes));
  EXPECT_EQ(bytes, *payload_of(fp16_, values));
  std::vector<float> result(1000);
  EXPECT_TRUE(mixed_.decode({15'000, 16'000}, bytes, result).ok());
  EXPECT_EQ(result, decoded_by(fp16_, bytes, 1000));
}

TEST_P(Mixed, ADifferenceIsEncodedAsItIs) {
  const std::vector<float> b = normal_vector(random_, kChunk.size(), 1e-3);
  std::vector<float> difference(kChunk.size());
  for (std::size_t i = 0; i < b.size(); ++i) difference[i] = values_[i] - b[i];
  std::vector<std::byte> bytes(mixed_.encoded_size(kChunk));
  const auto used = mixed_.encode_difference(kChunk, values_, b, bytes);
  ASSERT_TRUE(used);
  bytes.resize(*used);
  EXPECT_EQ(bytes, encoded(difference));
}

TEST_P(Mixed, SumsAreElementByElement) {
  const std::vector<std::byte> payload = encoded(values_);
  const std::vector<float> result = decoded(payload);
  std::vector<float> scaled(kChunk.size(), 99);
  ASSERT_TRUE(mixed_.decode_scaled(kChunk, payload, 0.25F, scaled).ok());
  std::vector<float> sum = normal_vector(random_, kChunk.size(), 1e-3);
  const std::vector<float> before = sum;
  ASSERT_TRUE(mixed_.decode_accumulate(kChunk, payload, 0.25F, sum).ok());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(scaled[i], 0.25F * result[i]);
    EXPECT_EQ(sum[i], before[i] + scaled[i]);
  }
}

TEST_P(Mixed, TheResidualComesIntoTheNextPayload) {
  const std::vector<float> anchor = normal_vector(random_, kChunk.size(), 1e-3);
  std::vector<float> residual = normal_vector(random_, kChunk.size(), 1e-4);
  const std::vector<float> zeros(kChunk.size());
  std::vector<float> wanted(kChunk.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = (anchor[i] - values_[i]) + residual[i];
  std::vector<std::byte> bytes(mixed_.encoded_size(kChunk));
  // The vector it reads is the one it writes, as at a commit.
  const auto used = mixed_.encode_difference_with_feedback(kChunk, anchor, values_, {residual, residual}, bytes);
  ASSERT_TRUE(used);
  bytes.resize(*used);
  EXPECT_EQ(bytes, encoded(wanted));
  const std::vector<float> sent = decoded(bytes);
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(residual[i], wanted[i] - sent[i]) << i;
  std::vector<float> next(kChunk.size());
  std::vector<std::byte> again(mixed_.encoded_size(kChunk));
  const auto size = mixed_.encode_with_feedback(kChunk, wanted, {zeros, next}, again);
  ASSERT_TRUE(size);
  again.resize(*size);
  EXPECT_EQ(again, bytes);
  EXPECT_EQ(next, residual);
}

TEST_P(Mixed, KeptElementsAreNearerThanTheOthers) {
  const std::vector<float> result = decoded(encoded(values_));
  const auto error = [&](bool kept) {
    const std::vector<float> a = joined(values_, kept);
    const std::vector<float> b = joined(result, kept);
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return std::sqrt(sum / static_cast<double>(a.size()));
  };
  EXPECT_LT(10 * error(true), error(false));
}

TEST_P(Mixed, OtherLengthsAreRefused) {
  std::vector<std::byte> payload = encoded(values_);
  std::vector<float> out(kChunk.size());
  for (const std::size_t length : {std::size_t{0}, std::size_t{100}, payload.size() - 1}) {
    EXPECT_FALSE(mixed_.decode(kChunk, std::span(payload).first(length), out).ok()) << length;
  }
  const Status shorter = mixed_.decode(kChunk, std::span(payload).first(100), out);
  EXPECT_THAT(shorter.message(), HasSubstr("elements that are kept at 16 bits; got 100"));
  payload.push_back(std::byte{0});
  EXPECT_FALSE(mixed_.decode(kChunk, payload, out).ok());
  EXPECT_FALSE(mixed_.decode({15'000, 16'000}, payload, out).ok());
}

TEST_P(Mixed, NonFiniteValuesAreNotSent) {
  std::vector<std::byte> bytes(mixed_.encoded_size(kChunk));
  for (const std::size_t at : {std::size_t{0}, std::size_t{200}}) {  // kept, and not
    std::vector<float> values = values_;
    values[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(mixed_.encode(kChunk, values, bytes)) << at;
  }
}

TEST_P(Mixed, TheUsualSizeIsInProportionToTheElements) {
  const double whole = static_cast<double>(mixed_.encoded_size({0, kElements}));
  EXPECT_NEAR(static_cast<double>(mixed_.usual_size(kElements / 4)), whole / 4, 2);
  EXPECT_GT(mixed_.encoded_size({0, kElements}), codec_.encoded_size(kElements));
  EXPECT_EQ(MixedCodec(GetParam(), {}, kElements).usual_size(4096), codec_.encoded_size(4096));
}

TEST(MixedCodec, CodecsOf16BitsAndMoreKeepNothing) {
  Prng random(3);
  const std::vector<float> values = normal_vector(random, kChunk.size(), 1e-3);
  for (const CodecId id : {CodecId::kFp32, CodecId::kBf16, CodecId::kFp16}) {
    MixedCodec mixed(id, kWhole, kElements);
    std::vector<std::byte> bytes(mixed.encoded_size(kChunk));
    ASSERT_EQ(bytes.size(), codec_for(id).encoded_size(kChunk.size()));
    ASSERT_TRUE(mixed.encode(kChunk, values, bytes));
    EXPECT_EQ(bytes, *payload_of(codec_for(id), values));
  }
}

}  // namespace
}  // namespace collab
