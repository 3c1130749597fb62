// The norms that `rda` goes by, against its formula in binary64.
#include "core/outer/radial_norms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/prng.h"
#include "core/outer/outer.h"

namespace collab {
namespace {

using ::testing::HasSubstr;
using Vectors = std::vector<std::vector<float>>;

std::vector<float> random_vector(Prng& random, std::size_t n, double size) {
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(size * (random.uniform() - 0.5));
  return values;
}

std::vector<float> mean_of(const Vectors& deltas, const std::vector<float>& shares) {
  std::vector<float> mean(deltas[0].size());
  for (std::size_t site = 0; site < deltas.size(); ++site) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += shares[site] * deltas[site][i];
  }
  return mean;
}

std::span<const float> part_of(const std::vector<float>& vector, ElementRange range) {
  return std::span(vector).subspan(range.begin, range.size());
}

std::vector<std::byte> bytes_of(const RadialNorms& norms, ElementRange chunk, const Vectors& deltas,
                                const std::vector<float>& mean) {
  std::vector<double> squares;
  for (const std::vector<float>& delta : deltas) norms.measure(chunk, part_of(delta, chunk), squares);
  std::vector<std::byte> bytes(norms.size(chunk));
  norms.write(chunk, squares, part_of(mean, chunk), bytes);
  return bytes;
}

std::vector<RadialNorms::Factor> factors_of(RadialNorms norms, std::uint64_t chunk_elements, ElementRange range,
                                            const Vectors& deltas, const std::vector<float>& mean) {
  std::vector<ElementRange> chunks;
  for (std::uint64_t at = range.begin; at < range.end; at += chunk_elements) {
    chunks.push_back({at, std::min(range.end, at + chunk_elements)});
  }
  std::ranges::reverse(chunks);  // they come in any order
  for (const ElementRange& chunk : chunks) {
    const Status taken = norms.take(chunk, bytes_of(norms, chunk, deltas, mean));
    EXPECT_TRUE(taken.ok()) << taken.to_string();
  }
  return norms.factors();
}

double norm64(const std::vector<float>& vector, ElementRange range) {
  double square = 0;
  for (std::size_t i = range.begin; i < range.end; ++i) square += double{vector[i]} * double{vector[i]};
  return std::sqrt(square);
}

const std::vector<ElementRange> kTensors{{0, 700}, {900, 901}, {901, 2000}, {2500, 6000}};

TEST(RadialNorms, FactorsAreTheMeanOfNormsOverTheNormOfTheMean) {
  Prng random(7);
  const std::vector<float> shares{0.5F, 0.125F, 0.375F};
  Vectors deltas;
  const std::vector<float> common_part = random_vector(random, 6000, 1);
  for (const double size : {1.0, 3.0, 0.2}) {
    deltas.push_back(random_vector(random, 6000, size));
    for (std::size_t i = 0; i < 6000; ++i) deltas.back()[i] += common_part[i];
  }
  std::ranges::fill(std::span(deltas[1]).subspan(0, 700), 0.0F);
  const std::vector<float> mean = mean_of(deltas, shares);
  // All of it, in whole tensors and in parts; and of a fragment what is there of each.
  for (const auto& [range, chunk] : std::vector<std::pair<ElementRange, std::uint64_t>>{
           {{0, 6000}, 6000}, {{0, 6000}, 1024}, {{0, 6000}, 64}, {{650, 2600}, 512}}) {
    const auto factors = factors_of({kTensors, range, shares}, chunk, range, deltas, mean);
    ASSERT_EQ(factors.size(), 4U);
    for (std::size_t t = 0; t < 4; ++t) {
      const ElementRange tensor = common(kTensors[t], range);
      EXPECT_EQ(factors[t].range, tensor);
      double norms = 0;
      for (std::size_t site = 0; site < 3; ++site) norms += double{shares[site]} * norm64(deltas[site], tensor);
      const double expected = std::clamp(norms / norm64(mean, tensor), 1.0, std::sqrt(3.0));
      EXPECT_NEAR(factors[t].factor, expected, 2e-7 * expected) << t << " in chunks of " << chunk;
      if (tensor.size() > 1) {
        EXPECT_GT(factors[t].factor, 1.01F);
      }
    }
  }
}

TEST(RadialNorms, TheOrderInWhichChunksComeChangesNoBit) {
  Prng random(8);
  const std::vector<float> shares{0.25F, 0.75F};
  const Vectors deltas{random_vector(random, 6000, 1), random_vector(random, 6000, 2)};
  const std::vector<float> mean = mean_of(deltas, shares);
  RadialNorms forward(kTensors, {0, 6000}, shares);
  for (std::uint64_t at = 0; at < 6000; at += 1000) {
    ASSERT_TRUE(forward.take({at, at + 1000}, bytes_of(forward, {at, at + 1000}, deltas, mean)).ok());
  }
  const auto backward = factors_of({kTensors, {0, 6000}, shares}, 1000, {0, 6000}, deltas, mean);
  for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(forward.factors()[t].factor, backward[t].factor);
}

TEST(RadialNorms, FactorsLieBetweenThoseOfEqualAndOfOrthogonalDeltas) {
  const std::vector<float> halves{0.5F, 0.5F};
  const std::vector<ElementRange> one{{0, 2}};
  const auto factor = [&](const Vectors& deltas) {
    return factors_of({one, {0, 2}, halves}, 2, {0, 2}, deltas, mean_of(deltas, halves)).at(0).factor;
  };
  EXPECT_EQ(factor({{3, -4}, {3, -4}}), 1.0F);
  EXPECT_EQ(factor({{1, 0}, {0, 1}}), static_cast<float>(std::sqrt(2.0)));
  EXPECT_EQ(factor({{1, 0}, {-0.9F, 0}}), static_cast<float>(std::sqrt(2.0))) << "19 times without the bound";
  EXPECT_EQ(factor({{1, 0}, {-1, 0}}), static_cast<float>(std::sqrt(2.0))) << "of a mean that is 0";
  EXPECT_EQ(factor({{0, 0}, {0, 0}}), 1.0F);
  EXPECT_NEAR(factor({{1e30F, 0}, {1e30F, 2e30F}}), (1 + std::sqrt(5.0)) / 2 / std::sqrt(2.0), 1e-6)
      << "beyond float32";
  EXPECT_EQ(radial_factor(std::numeric_limits<double>::infinity(), 1, 4), 2.0F);
  EXPECT_EQ(radial_factor(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 4), 1.0F);
}

TEST(RadialNorms, TakeTwoNumbersForAWholeTensorAndMoreForAPart) {
  const RadialNorms norms(kTensors, {0, 6000}, {0.5F, 0.25F, 0.25F});
  EXPECT_EQ(norms.size({0, 6000}), 8U * 8);
  EXPECT_EQ(norms.size({0, 699}), 8U * 4) << "three sites and their mean";
  EXPECT_EQ(norms.size({100, 2400}), 8U * (4 + 2 + 2));
  EXPECT_EQ(norms.size({2000, 2500}), 0U) << "of an embedding nothing is needed";
}

TEST(RadialNorms, RefuseInvalidNorms) {
  RadialNorms norms(kTensors, {0, 6000}, {0.5F, 0.5F});
  const ElementRange chunk{0, 6000};
  std::vector<std::byte> bytes(norms.size(chunk));
  EXPECT_TRUE(norms.take(chunk, bytes).ok());
  EXPECT_THAT(norms.take(chunk, std::span(bytes).first(56)).message(), HasSubstr("expected 64 bytes of norms, got 56"));
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto bits = std::bit_cast<std::uint64_t>(bad);
    for (std::size_t i = 0; i < 8; ++i) bytes[24 + i] = static_cast<std::byte>(bits >> (8 * i));
    EXPECT_THAT(norms.take(chunk, bytes).message(), HasSubstr("expected norms, finite and not negative, got"));
  }
}

TEST(RadialNorms, FactorsMultiplyTheirTensorsAlone) {
  const std::vector<RadialNorms::Factor> factors{{{2, 4}, 2.0F}, {{4, 5}, 3.0F}, {{8, 10}, 0.5F}};
  std::vector<float> vector(10, 1.0F);
  multiply(factors, 0, vector);
  EXPECT_EQ(vector, (std::vector<float>{1, 1, 2, 2, 3, 1, 1, 1, 0.5F, 0.5F}));
  std::vector<float> part(6, 1.0F);
  multiply(factors, 3, part);
  EXPECT_EQ(part, (std::vector<float>{2, 3, 1, 1, 1, 0.5F}));
  EXPECT_DOUBLE_EQ(norm_with(factors, 3, std::vector<float>(6, 1.0F)), std::sqrt(4 + 9 + 3 + 0.25));
  EXPECT_DOUBLE_EQ(norm_with({}, 3, std::vector<float>{3, 4}), 5);
}

}  // namespace
}  // namespace collab
