// How contributions relate to each other, by the samples that sites send with Ready.
#include "core/protocol/coordinator/delta_statistics.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Optional;
using testing::Pair;
using H = CoordinatorHarness;
using Sampled = std::vector<std::uint32_t>;

constexpr std::uint64_t kSampled = 256;
const ElementRange kWhole{0, kSampled};

// `a` at even elements, `b` at odd ones.
Sampled in_turn(float a, float b) {
  Sampled sampled;
  for (std::uint64_t i = 0; i < kSampled; ++i) sampled.push_back(std::bit_cast<std::uint32_t>(i % 2 == 0 ? a : b));
  return sampled;
}

TEST(DeltaStatistics, TheSpreadOfEqualDeltasIsZeroAndOfOrthogonalDeltasOne) {
  DeltaStatistics deltas;
  const Sampled even = in_turn(1, 0);
  const Sampled odd = in_turn(0, 1);
  EXPECT_THAT(deltas.committed({{{1, even}, {3, even}}}, kSampled, kWhole).spread, Optional(0.0));
  EXPECT_NEAR(deltas.committed({{{2, even}, {2, odd}}}, kSampled, kWhole).spread.value_or(0), 1, 1e-12);
}

TEST(DeltaStatistics, TheMeanIsWeighted) {
  DeltaStatistics deltas;
  const Sampled one = in_turn(1, 1);
  const Sampled four = in_turn(4, 4);
  // The mean is 2, and they differ from it by -1 and 2: the root of (2 * 1 + 1 * 4) / 3, over 2.
  EXPECT_NEAR(deltas.committed({{{2, one}, {1, four}}}, kSampled, kWhole).spread.value_or(0), std::sqrt(2.0) / 2,
              1e-12);
}

TEST(DeltaStatistics, TheCosineIsToTheMeanBeforeOfTheSameFragment) {
  DeltaStatistics deltas;
  const ElementRange first{0, kSampled / 2};
  const ElementRange second{kSampled / 2, kSampled};
  const Sampled there = in_turn(1, 2);
  const Sampled back = in_turn(-2, -4);
  EXPECT_EQ(deltas.committed({{{1, there}}}, kSampled, first).cosine, std::nullopt) << "there is none before it";
  EXPECT_EQ(deltas.committed({{{1, back}}}, kSampled, second).cosine, std::nullopt) << "of another fragment";
  EXPECT_NEAR(deltas.committed({{{1, there}}}, kSampled, first).cosine.value_or(0), 1, 1e-12);
  EXPECT_NEAR(deltas.committed({{{1, there}}}, kSampled, second).cosine.value_or(0), -1, 1e-12);
  EXPECT_NEAR(deltas.last().cosine.value_or(0), -1, 1e-12);
}

TEST(DeltaStatistics, AreNotReportedForTooFewOrNonFiniteValues) {
  DeltaStatistics deltas;
  const Sampled one = in_turn(1, 1);
  const Sampled none = in_turn(0, 0);
  const Sampled bad = in_turn(std::numeric_limits<float>::quiet_NaN(), 1);
  const Sampled few{one.begin(), one.begin() + 8};
  EXPECT_EQ(deltas.committed({{{1, one}}}, kSampled, kWhole).spread, std::nullopt) << "of one";
  EXPECT_EQ(deltas.committed({{{1, one}, {1, few}}}, kSampled, kWhole).spread, std::nullopt);
  EXPECT_EQ(deltas.committed({{{1, few}, {1, few}}}, 8, ElementRange{0, 8}).spread, std::nullopt);
  EXPECT_EQ(deltas.committed({{{1, none}, {1, none}}}, kSampled, kWhole).spread, std::nullopt);
  EXPECT_EQ(deltas.committed({{{1, one}, {1, bad}}}, kSampled, kWhole).spread, std::nullopt);
  EXPECT_EQ(deltas.committed({}, kSampled, kWhole).spread, std::nullopt);
}

TEST(DeltaStatistics, ComeWithTheRoundAndInTheStatus) {
  H c;
  c.gather({"paris", "tokyo"});
  wire::StartAttempt start;
  for (std::uint64_t link = 1; link <= 2; ++link) {
    wire::Ready ready = H::ready(1);
    const std::uint64_t elements = join_of("paris", 2).elements;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(elements, kSampled); ++i)
      ready.sampled_delta.push_back(std::bit_cast<std::uint32_t>(i % 2 == link - 1 ? 1.0F : 0.0F));
    const auto starts = sent<wire::StartAttempt>(c.hear(link, ready));
    if (!starts.empty()) start = starts[0].second;
  }
  EXPECT_THAT(to_json(c.coordinator.status(c.now)), HasSubstr("\"spread\":null,\"cosine\":null"));
  static_cast<void>(c.hear(1, H::done(start)));
  bool told = false;
  for (const auto& action : c.hear(2, H::done(start))) {
    const auto* note = std::get_if<Note>(&action);
    if (note == nullptr || note->event != "round") continue;
    told = true;
    EXPECT_THAT(note->fields, Contains(Pair("spread", "1")));
    EXPECT_THAT(note->fields, Contains(Pair("cosine", "null")));
  }
  EXPECT_TRUE(told);
  EXPECT_THAT(to_json(c.coordinator.status(c.now)), HasSubstr("\"spread\":1,\"cosine\":null"));
}

}  // namespace
}  // namespace collab::protocol
