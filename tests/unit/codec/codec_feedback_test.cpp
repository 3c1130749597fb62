// Error feedback: what it sends, what it keeps, and that in the long run nothing is lost.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "collab/codec.h"
#include "tests/unit/codec/samples.h"

namespace collab {
namespace {

constexpr std::size_t kElements = 9001;  // two groups of top-k and a part; no multiple of any block

struct Sent {
  std::vector<std::byte> payload;
  std::vector<float> next;
};

template <typename Encode>
Sent sent_by(const Codec& codec, std::size_t n, Encode&& encode) {
  Sent sent{std::vector<std::byte>(codec.encoded_size(n)), std::vector<float>(n)};
  const std::optional<std::size_t> size = encode(sent.next, sent.payload);
  EXPECT_TRUE(size.has_value()) << codec.name();
  sent.payload.resize(size.value_or(0));
  return sent;
}

TEST(CodecFeedback, SendsTheSumAndKeepsTheRest) {
  Prng random(31);
  const std::vector<float> a = normal_vector(random, kElements, 1e-3);
  const std::vector<float> b = normal_vector(random, kElements, 1e-3);
  const std::vector<float> residual = normal_vector(random, kElements, 1e-3);
  for (const bool difference : {false, true}) {
    std::vector<float> whole(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      const volatile float value = difference ? a[i] - b[i] : a[i];  // volatile: rounded on its own
      whole[i] = value + residual[i];
    }
    for (const CodecId id : kAllCodecs) {
      const Codec& codec = codec_for(id);
      const auto encode = [&](Feedback feedback, std::span<std::byte> out) {
        return difference ? codec.encode_difference_with_feedback(a, b, feedback, out)
                          : codec.encode_with_feedback(a, feedback, out);
      };
      const Sent apart = sent_by(codec, kElements, [&](auto& next, auto& out) {
        return encode({residual, next}, out);
      });
      EXPECT_EQ(apart.payload, payload_of(codec, whole).value()) << codec.name();
      std::vector<float> back(kElements);
      ASSERT_TRUE(codec.decode(apart.payload, back).ok());
      for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(apart.next[i], whole[i] - back[i]) << codec.name() << i;
      const Sent in_place = sent_by(codec, kElements, [&](auto& next, auto& out) {
        next = residual;
        return encode({next, next}, out);
      });
      EXPECT_EQ(in_place.payload, apart.payload) << codec.name();
      EXPECT_EQ(bits_of(in_place.next), bits_of(apart.next)) << codec.name();
    }
  }
}

TEST(CodecFeedback, SeesWhatIsNotFinite) {
  const float huge = std::numeric_limits<float>::max();
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    std::vector<std::byte> out(codec.encoded_size(300));
    on_every_path([&](codec::Path) {
      for (const std::size_t at : {0U, 127U, 255U, 256U, 299U}) {
        std::vector<float> values(300, 1.0F);
        std::vector<float> residual(300, 0.5F);
        std::vector<float> next(300);
        const auto fits = [&] {
          const std::vector<float> zeros(300);
          const bool plain = codec.encode_with_feedback(values, {residual, next}, out).has_value();
          EXPECT_EQ(codec.encode_difference_with_feedback(values, zeros, {residual, next}, out).has_value(), plain);
          return plain;
        };
        EXPECT_TRUE(fits());
        values[at] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_FALSE(fits()) << codec.name();
        values[at] = 1.0F;
        residual[at] = -std::numeric_limits<float>::infinity();
        EXPECT_FALSE(fits()) << codec.name();
        residual[at] = values[at] = huge;
        EXPECT_FALSE(fits()) << codec.name() << ": the sum overflows";
        residual[at] = 0.0F;
        EXPECT_TRUE(fits());
        for (const float left : next) ASSERT_TRUE(std::isfinite(left)) << codec.name();
      }
    });
  }
}

// Sends one vector again and again. What has arrived, divided by the number of rounds, nears the vector: with feedback
// the error falls as 1/rounds, without it stays.
TEST(CodecFeedback, NothingIsLostInTheLongRun) {
  Prng random(33);
  const std::vector<float> values = normal_vector(random, kElements, 1.0);
  double norm = 0;
  for (const float value : values) norm += double{value} * double{value};
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    const bool sparse = !codec.fixed_size();
    const int rounds = sparse ? 400 : 50;
    std::vector<float> residual(kElements);
    std::vector<std::byte> out(codec.encoded_size(kElements));
    std::vector<double> arrived(kElements);
    std::vector<float> back(kElements);
    for (int round = 0; round < rounds; ++round) {
      const std::optional<std::size_t> size = codec.encode_with_feedback(values, {residual, residual}, out);
      ASSERT_TRUE(size);
      ASSERT_TRUE(codec.decode(std::span(out).first(*size), back).ok());
      for (std::size_t i = 0; i < kElements; ++i) arrived[i] += double{back[i]};
    }
    double error = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double off = arrived[i] / rounds - double{values[i]};
      error += off * off;
    }
    EXPECT_LE(std::sqrt(error / norm), sparse ? 0.2 : 0.04) << codec.name();
  }
}

TEST(CodecFeedback, ZerosStayZeros) {
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    const std::vector<float> zeros(kElements);
    const Sent sent = sent_by(codec, kElements, [&](auto& next, auto& out) {
      return codec.encode_with_feedback(zeros, {zeros, next}, out);
    });
    EXPECT_EQ(sent.next, zeros) << codec.name();
  }
}

}  // namespace
}  // namespace collab
