// Two sites that train on the same data are told, and no others are.
#include "core/protocol/coordinator/duplicate_data.h"

#include <gmock/gmock.h>

#include <bit>

#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using H = CoordinatorHarness;
using SampledDelta = std::vector<std::uint32_t>;

SampledDelta sampled_delta(std::uint64_t seed, float noise = 0, std::size_t size = 256) {
  const auto draw = [](std::uint64_t& state) {  // in [-1, 1)
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<float>(static_cast<double>(state >> 33) / (1ULL << 30)) - 1.0F;
  };
  std::uint64_t other = seed + 1000;
  SampledDelta bits;
  for (std::size_t i = 0; i < size; ++i) bits.push_back(std::bit_cast<std::uint32_t>(draw(seed) + noise * draw(other)));
  return bits;
}

TEST(DuplicateData, SampledElementsAreSpreadAndBounded) {
  EXPECT_TRUE(sample_of(0).empty());
  EXPECT_EQ(sample_of(3), (std::vector<std::uint64_t>{0, 1, 2}));
  const auto places = sample_of(1'000'000'000);
  EXPECT_EQ(places.size(), wire::kMaxSampledDelta);
  EXPECT_EQ(places[1], 3'906'250U);
  EXPECT_LT(places.back(), 1'000'000'000U);
}

TEST(DuplicateData, IsReportedAfterTwoRoundsInARowAndOnce) {
  DuplicateData duplicate_data;
  const SampledDelta a = sampled_delta(1);
  const SampledDelta b = sampled_delta(1, 0.01F);
  const SampledDelta c = sampled_delta(2);
  const auto round = [&](const SampledDelta& of_b) {
    return duplicate_data.committed({{SiteId{0}, a}, {SiteId{1}, of_b}, {SiteId{2}, c}});
  };
  EXPECT_TRUE(round(b).empty());
  EXPECT_TRUE(round(c).empty()) << "b and c now, but for the first time";
  EXPECT_TRUE(round(b).empty());
  const auto found = round(b);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].a, SiteId{0});
  EXPECT_EQ(found[0].b, SiteId{1});
  EXPECT_GT(found[0].cosine, 0.99);
  EXPECT_TRUE(round(b).empty()) << "told already";
}

TEST(DuplicateData, ACosineIsNeverRoundedAboveOne) {
  for (std::uint64_t seed = 1; seed < 30; ++seed) {
    DuplicateData duplicate_data;
    const SampledDelta same = sampled_delta(seed);
    EXPECT_TRUE(duplicate_data.committed({{SiteId{0}, same}, {SiteId{1}, same}}).empty());
    EXPECT_LE(duplicate_data.committed({{SiteId{0}, same}, {SiteId{1}, same}}).at(0).cosine, 1.0) << seed;
  }
}

TEST(DuplicateData, UninformativeSamplesAreNotCompared) {
  DuplicateData duplicate_data;
  const SampledDelta little = sampled_delta(1, 0, kLeastSampledDelta - 1);
  const SampledDelta nothing(256, 0);
  const SampledDelta broken(256, 0x7FC00000);  // NaN
  const SampledDelta longer = sampled_delta(1);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(duplicate_data
                    .committed({{SiteId{0}, little},
                                {SiteId{1}, little},
                                {SiteId{2}, nothing},
                                {SiteId{3}, nothing},
                                {SiteId{4}, broken},
                                {SiteId{5}, broken},
                                {SiteId{6}, longer},
                                {SiteId{7}, SampledDelta()}})
                    .empty());
  }
}

TEST(DuplicateData, IsFoundAmongManySites) {
  DuplicateData duplicate_data;
  std::vector<SampledDelta> all;
  for (std::uint64_t site = 0; site < 500; ++site) all.push_back(sampled_delta(site == 400 ? 17 : site, 0.001F));
  std::map<SiteId, std::span<const std::uint32_t>> sampled_deltas;
  for (std::uint32_t site = 0; site < 500; ++site) sampled_deltas[SiteId{site}] = all[site];
  EXPECT_TRUE(duplicate_data.committed(sampled_deltas).empty());
  const auto found = duplicate_data.committed(sampled_deltas);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].a, SiteId{17});
  EXPECT_EQ(found[0].b, SiteId{400});
}

TEST(DuplicateData, BothSitesAreTold) {
  H c;
  c.gather({"paris", "tokyo", "lima"});
  H::Actions last;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    wire::StartAttempt start;
    for (std::uint64_t link = 1; link <= 3; ++link) {
      wire::Ready ready = H::ready(number, 1, number == 1 ? kRight : kWrong);
      ready.sampled_delta = sampled_delta(link == 3 ? 3 : 1);
      const auto starts = sent<wire::StartAttempt>(c.hear(link, ready));
      if (!starts.empty()) start = starts[0].second;
    }
    for (std::uint64_t link = 1; link <= 3; ++link) last = c.hear(link, H::done(start));
    EXPECT_EQ(sent<wire::Notice>(last).size(), number == 1 ? 0U : 2U);
    for (std::uint64_t link = 1; link <= 3; ++link) {
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{number}, kWrong}));
    }
  }
  EXPECT_THAT(sent<wire::Notice>(last)[0].second.text, HasSubstr("paris and tokyo have learned the same"));
  for (const char* way : {"DistributedSampler", "torch_collab.site_index() to the seed", "IterableDataset"}) {
    EXPECT_THAT(sent<wire::Notice>(last)[0].second.text, HasSubstr(way));
  }
  EXPECT_THAT(notes(last), HasSubstr("[same-data]"));
}

TEST(DuplicateData, ASiteTellsItsUser) {
  SiteHarness s;
  s.become(0, {"paris"});
  EXPECT_THAT(notes(s.hear(1, wire::Notice{"same-data", "paris and tokyo"})), HasSubstr("[same-data] paris and tokyo"));
}

}  // namespace
}  // namespace collab::protocol
