// The life of what payloads leave out: it changes only at the commit, moves with the ownership, and nothing is lost.
#include "core/runtime/tensors/residual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "core/reduce/reduce.h"
#include "core/runtime/tensors/training_copy.h"
#include "tests/unit/codec/samples.h"

namespace collab {
namespace {

constexpr std::uint64_t kElements = 4 * 4096 + 77;
constexpr std::uint64_t kChunk = 4096;

ElementRange range_of(std::uint64_t begin, std::uint64_t end) { return {begin, end}; }

std::span<const float> part_of(std::span<const float> vector, ElementRange range) {
  return vector.subspan(range.begin, range.size());
}

// Sites with these weights; the elements from bounds[i] on are site i's.
wire::StartAttempt start_of(const std::vector<double>& weights, std::vector<std::uint64_t> bounds) {
  wire::StartAttempt start;
  bounds.push_back(kElements);
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    start.participants.push_back({SiteId(i), std::to_string(i), weights[i]});
    if (bounds[i] < bounds[i + 1]) start.slices.push_back({SiteId(i), range_of(bounds[i], bounds[i + 1])});
  }
  return start;
}

float share_of(const wire::StartAttempt& start, std::uint32_t site) {
  std::vector<double> weights;
  for (const wire::Participant& p : start.participants) weights.push_back(p.weight);
  return mean_scales(weights)[site];
}

struct Lifetime : ::testing::Test {
  Prng random{41};
  std::vector<float> anchor = normal_vector(random, kElements, 1.0);
  std::vector<float> parameters = normal_vector(random, kElements, 1.0);
  std::vector<float> mean = normal_vector(random, kElements, 1.0);
  Residual residual{{CodecId::kInt4, CodecId::kInt8}, true, kElements, kChunk};

  void begin(const wire::StartAttempt& start) { residual.start(start, SiteId(0), share_of(start, 0)); }
  std::vector<std::byte> contribution(ElementRange range) {
    std::vector<std::byte> bytes(codec_for(CodecId::kInt4).encoded_size(range.size()));
    EXPECT_TRUE(residual.encode_contribution(range, part_of(anchor, range), part_of(parameters, range), bytes));
    return bytes;
  }
  std::vector<std::byte> mean_of(ElementRange range) {
    std::vector<std::byte> bytes(codec_for(CodecId::kInt8).encoded_size(range.size()));
    EXPECT_TRUE(residual.encode_mean(range, part_of(mean, range), bytes));
    return bytes;
  }
  // Everything site 0 does in an attempt, in chunks.
  void encode_all(const wire::StartAttempt& start) {
    for (const wire::Slice& slice : start.slices) {
      for (std::uint64_t at = slice.range.begin; at < slice.range.end; at += kChunk) {
        const ElementRange chunk = range_of(at, std::min(at + kChunk, slice.range.end));
        slice.owner == SiteId(0) ? mean_of(chunk) : contribution(chunk);
      }
    }
  }
  void commit() {
    const Status done = residual.commit(
        anchor, [this](ElementRange range) -> Result<std::span<const float>> { return part_of(parameters, range); });
    EXPECT_TRUE(done.ok()) << done.to_string();
  }
  void commit_of_others() { EXPECT_TRUE(residual.commit(anchor, nullptr).ok()); }
  std::vector<float> values() const { return {residual.values().begin(), residual.values().end()}; }
  std::vector<float> values(ElementRange range) const {
    const auto part = part_of(residual.values(), range);
    return {part.begin(), part.end()};
  }
};

TEST_F(Lifetime, TakesMemoryOnlyWhereACodecNeedsIt) {
  const auto on = [](const Codecs& codecs, bool feedback) {
    return Residual(codecs, feedback, kElements, kChunk).on();
  };
  EXPECT_TRUE(on(CodecId::kInt8, true));
  EXPECT_TRUE(on({CodecId::kTopK64, CodecId::kFp16}, true));
  EXPECT_TRUE(on({CodecId::kFp16, CodecId::kInt4}, true));
  EXPECT_FALSE(on({CodecId::kBf16, CodecId::kFp16}, true));
  EXPECT_FALSE(on(CodecId::kInt2, false));
  for (const CodecId id : kAllCodecs) EXPECT_EQ(on(id, true), needs_error_feedback(id));
}

TEST_F(Lifetime, PayloadsWithoutAResidualAreTheCodecsOwn) {
  residual = Residual({CodecId::kInt4, CodecId::kInt8}, false, kElements, kChunk);
  const wire::StartAttempt start = start_of({1, 1}, {0, 8192});
  begin(start);
  const ElementRange range = range_of(8192, 12288);
  std::vector<float> delta(range.size());
  for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = anchor[range.begin + i] - parameters[range.begin + i];
  EXPECT_EQ(contribution(range), payload_of(codec_for(CodecId::kInt4), delta).value());
  commit();
  EXPECT_EQ(contribution(range), payload_of(codec_for(CodecId::kInt4), delta).value());
}

TEST_F(Lifetime, TheCommitKeepsWhatWasLeftOut) {
  const wire::StartAttempt start = start_of({1, 3}, {0, 8192});
  begin(start);
  const ElementRange theirs = range_of(8192, kElements);
  const ElementRange own = range_of(0, 8192);
  encode_all(start);
  EXPECT_EQ(values(), std::vector<float>(kElements)) << "nothing has been committed";
  std::vector<float> sent(theirs.size());
  std::vector<float> told(own.size());
  ASSERT_TRUE(codec_for(CodecId::kInt4).decode(contribution(theirs), sent).ok());
  ASSERT_TRUE(codec_for(CodecId::kInt8).decode(mean_of(own), told).ok());
  commit();
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const std::size_t at = theirs.begin + i;
    ASSERT_EQ(residual.values()[at], anchor[at] - parameters[at] - sent[i]) << at;
  }
  for (std::size_t i = 0; i < told.size(); ++i) ASSERT_EQ(residual.values()[i], mean[i] - told[i]) << i;
  EXPECT_EQ(residual.units().of_mean, std::vector{own});
  EXPECT_EQ(residual.units().share, 0.25F);
  EXPECT_EQ(residual.units().equal, 0.5F);
}

TEST_F(Lifetime, AnAttemptThatIsFormedAgainGetsTheSameBytes) {
  const wire::StartAttempt first = start_of({1, 1, 1}, {0, 4096, 8192});
  begin(first);
  encode_all(first);
  commit();
  const std::vector<float> before = values();
  parameters = normal_vector(random, kElements, 1.0);
  begin(first);
  const ElementRange range = range_of(8192, 12288);
  const std::vector<std::byte> sent = contribution(range);
  const std::vector<std::byte> told = mean_of(range_of(0, 4096));
  EXPECT_EQ(values(), before);
  // Formed again without site 1; what is sent does not depend on who else is in it.
  const wire::StartAttempt second = start_of({5, 0, 2}, {0, 4096, 4096});
  begin(second);
  EXPECT_EQ(contribution(range), sent);
  EXPECT_EQ(mean_of(range_of(0, 4096)), told);
  EXPECT_EQ(values(), before);
  encode_all(second);
  commit();
  EXPECT_NE(values(), before);
}

TEST_F(Lifetime, AContributionThatWasNotCommittedLeavesItAsItWas) {
  const wire::StartAttempt start = start_of({1, 1}, {0, 8192});
  begin(start);
  encode_all(start);
  commit();
  const std::vector<float> before = values();
  parameters = normal_vector(random, kElements, 1.0);
  mean = normal_vector(random, kElements, 1.0);
  begin(start_of({0, 1}, {0, 8192}));
  encode_all(start);
  commit_of_others();
  EXPECT_EQ(values(range_of(8192, kElements)), std::vector<float>(before.begin() + 8192, before.end()));
  EXPECT_NE(values(range_of(0, 8192)), std::vector<float>(before.begin(), before.begin() + 8192)) << "its means were";
  EXPECT_EQ(residual.units().share, 0.5F) << "of the last contribution";
}

TEST_F(Lifetime, UnitsChangeWithTheOwner) {
  const wire::StartAttempt first = start_of({3, 1}, {0, 8192});
  begin(first);
  encode_all(first);
  commit();
  const std::vector<float> before = values();
  // Now the other way round, in an attempt our contribution is no part of: units change, nothing else.
  begin(start_of({0, 1}, {0, 0}));
  commit_of_others();
  for (std::size_t i = 0; i < 8192; ++i) ASSERT_EQ(residual.values()[i], before[i] / 0.75F) << i;
  for (std::size_t i = 8192; i < kElements; ++i) ASSERT_EQ(residual.values()[i], before[i]) << i;
  EXPECT_TRUE(residual.units().of_mean.empty());

  // And elements it has only sent come into its own means: with a mean of 0 that is all they bring.
  std::ranges::fill(mean, 0.0F);
  begin(start_of({1, 1}, {0, kElements}));
  const ElementRange range = range_of(12288, 16384);
  std::vector<float> told(range.size());
  ASSERT_TRUE(codec_for(CodecId::kInt8).decode(mean_of(range), told).ok());
  std::vector<float> owed(range.size());
  for (std::size_t i = 0; i < owed.size(); ++i) owed[i] = 0.75F * before[range.begin + i];
  std::vector<float> rounded(range.size());
  ASSERT_TRUE(codec_for(CodecId::kInt8).decode(*payload_of(codec_for(CodecId::kInt8), owed), rounded).ok());
  EXPECT_EQ(told, rounded);
}

TEST_F(Lifetime, AChunkMayBeOwnedInPart) {
  const wire::StartAttempt first = start_of({1, 1}, {0, 1024});
  begin(first);
  encode_all(first);
  commit();
  const std::vector<float> before = values();
  std::vector<float> whole(kChunk);
  for (std::size_t i = 0; i < kChunk; ++i) {
    const volatile float delta = anchor[i] - parameters[i];  // volatile: rounded on its own
    whole[i] = delta + (i < 1024 ? before[i] / 0.5F : before[i]);
  }
  begin(start_of({1, 1}, {0, 0}));
  EXPECT_EQ(contribution(range_of(0, kChunk)), payload_of(codec_for(CodecId::kInt4), whole).value());
}

// A joiner owns slices before it has contributed, and later counts for half: its mean's error must not come back many
// times over.
TEST_F(Lifetime, ASmallWeightDoesNotBlowUpTheResidual) {
  for (const double weight : {0.0, 1e-9}) {
    residual = Residual({CodecId::kInt4, CodecId::kInt8}, true, kElements, kChunk);
    const wire::StartAttempt first = start_of({weight, 1}, {0, 8192});
    begin(first);
    encode_all(first);
    weight > 0 ? commit() : commit_of_others();
    const std::vector<float> before = values(range_of(0, 8192));
    begin(start_of({0, 1}, {0, 0}));
    commit_of_others();
    for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(residual.values()[i], before[i] / 0.5F) << weight;
  }
}

TEST_F(Lifetime, ParametersThatAreNotFiniteLeaveNothingBehind) {
  const wire::StartAttempt start = start_of({1, 1}, {0, 8192});
  begin(start);
  encode_all(start);
  commit();
  begin(start);
  parameters[9000] = std::numeric_limits<float>::quiet_NaN();
  const ElementRange range = range_of(8192, 12288);
  std::vector<std::byte> bytes(codec_for(CodecId::kInt4).encoded_size(range.size()));
  EXPECT_FALSE(residual.encode_contribution(range, part_of(anchor, range), part_of(parameters, range), bytes));
  // Formed again without us; our means are still needed.
  begin(start_of({0, 1}, {0, 8192}));
  mean_of(range_of(0, 4096));
  mean_of(range_of(4096, 8192));
  residual.drop();
  EXPECT_EQ(values(), std::vector<float>(kElements));
  commit_of_others();
  EXPECT_EQ(values(range_of(8192, kElements)), std::vector<float>(kElements - 8192));
  EXPECT_NE(values(range_of(0, 8192)), std::vector<float>(8192));
}

TEST_F(Lifetime, OnlyElementsThatEnterAPayloadDecay) {
  constexpr float kDecay = 0.75F;
  residual = Residual({CodecId::kInt4, CodecId::kInt8}, true, kElements, kChunk, kDecay);
  const wire::StartAttempt start = start_of({1, 3}, {0, 8192});
  begin(start);
  encode_all(start);
  commit();
  const std::vector<float> left_out = values();
  begin(start);
  const ElementRange theirs = range_of(8192, 12288);
  const ElementRange own = range_of(0, 4096);
  std::vector<float> delta(theirs.size());
  std::vector<float> next_mean(own.size());
  for (std::size_t i = 0; i < delta.size(); ++i) {
    delta[i] = anchor[8192 + i] - parameters[8192 + i] + kDecay * left_out[8192 + i];
    next_mean[i] = mean[i] + kDecay * left_out[i];
  }
  EXPECT_EQ(contribution(theirs), payload_of(codec_for(CodecId::kInt4), delta).value());
  EXPECT_EQ(mean_of(own), payload_of(codec_for(CodecId::kInt8), next_mean).value());
  EXPECT_EQ(values(), left_out) << "it stands until the commit";
  commit_of_others();
  EXPECT_EQ(values(theirs), std::vector(left_out.begin() + 8192, left_out.begin() + 12288)) << "it was not sent";
  begin(start);
  encode_all(start);
  commit();
  std::vector<float> sent(delta.size());
  ASSERT_TRUE(codec_for(CodecId::kInt4).decode(payload_of(codec_for(CodecId::kInt4), delta).value(), sent).ok());
  for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_EQ(residual.values()[8192 + i], delta[i] - sent[i]) << i;
}

TEST_F(Lifetime, AloneNothingIsEncodedAndNothingChanges) {
  const wire::StartAttempt start = start_of({1, 1}, {0, 8192});
  begin(start);
  encode_all(start);
  commit();
  const std::vector<float> before = values();
  begin(start_of({1}, {0}));
  commit();
  EXPECT_EQ(values(), before);
  EXPECT_EQ(residual.units().of_mean, std::vector{range_of(0, 8192)});
}

TEST_F(Lifetime, TakesTheResidualOfAnotherProcessOfTheSameRun) {
  const wire::StartAttempt start = start_of({1, 3}, {0, 8192});
  begin(start);
  encode_all(start);
  commit();
  const std::vector<float> before = values();
  const ResidualUnits units = residual.units();
  begin(start);
  const std::vector<std::byte> sent = contribution(range_of(8192, 12288));
  for (const bool same_run : {true, false}) {
    residual = Residual({CodecId::kInt4, CodecId::kInt8}, true, kElements, kChunk);
    residual.restore({RunId(7), units, before});
    residual.settle(RunId(same_run ? 7 : 8));
    EXPECT_EQ(values(), same_run ? before : std::vector<float>(kElements));
    begin(start);
    EXPECT_EQ(contribution(range_of(8192, 12288)) == sent, same_run);
    residual.settle(RunId(9));
    EXPECT_EQ(values(), same_run ? before : std::vector<float>(kElements)) << "later anchors keep it";
  }
  Residual off(CodecId::kFp16, true, kElements, kChunk);
  off.restore({RunId(7), units, before});
  EXPECT_FALSE(off.on());
  residual.restore({RunId(7), units, std::vector<float>(5)});
  EXPECT_EQ(residual.values().size(), kElements);
}

TEST(Residual, TheSizeOfChunksDoesNotChangeIt) {
  Prng random(43);
  const std::vector<float> anchor = normal_vector(random, kElements, 1.0);
  for (const CodecId id : {CodecId::kInt8, CodecId::kInt4, CodecId::kInt4E3m0, CodecId::kInt2, CodecId::kTopK128}) {
    const std::vector<float> parameters = normal_vector(random, kElements, 1.0);
    std::vector<std::vector<float>> after;
    for (const std::uint64_t chunk : {4096U, 8192U, 65536U}) {
      Residual residual(id, true, kElements, chunk);
      const wire::StartAttempt start = start_of({1, 1}, {0, 4096});
      for (int round = 0; round < 3; ++round) {
        residual.start(start, SiteId(0), 0.5F);
        EXPECT_TRUE(residual
                        .commit(anchor,
                                [&](ElementRange range) -> Result<std::span<const float>> {
                                  return part_of(parameters, range);
                                })
                        .ok());
      }
      after.emplace_back(residual.values().begin(), residual.values().end());
    }
    EXPECT_EQ(bits_of(after[1]), bits_of(after[0])) << codec_for(id).name();
    EXPECT_EQ(bits_of(after[2]), bits_of(after[0])) << codec_for(id).name();
  }
}

// ---- many rounds -------------------------------------------------------------------------------------

// One attempt of all sites, up to the commit: f(chunk, its mean as everybody decodes it).
template <typename F>
void exchange(const Codecs& codecs, const wire::StartAttempt& start, std::vector<Residual>& residuals,
              std::span<const float> anchor, const std::vector<std::vector<float>>& parameters, F f) {
  const Codec& up = codec_for(codecs.up);
  const Codec& down = codec_for(codecs.down);
  const auto sites = static_cast<std::uint32_t>(parameters.size());
  for (std::uint32_t site = 0; site < sites; ++site) residuals[site].start(start, SiteId(site), share_of(start, site));
  for (const wire::Slice& slice : start.slices) {
    for (std::uint64_t at = slice.range.begin; at < slice.range.end; at += kChunk) {
      const ElementRange chunk = range_of(at, std::min(at + kChunk, slice.range.end));
      std::vector<float> mean(chunk.size());
      for (std::uint32_t site = 0; site < sites; ++site) {
        const auto from = part_of(anchor, chunk);
        const auto to = part_of(parameters[site], chunk);
        const float share = share_of(start, site);
        if (SiteId(site) == slice.owner) {
          EXPECT_TRUE(accumulate_difference(from, to, share, site == 0, mean));
          continue;
        }
        std::vector<std::byte> bytes(up.encoded_size(chunk.size()));
        const auto used = residuals[site].encode_contribution(chunk, from, to, bytes);
        const auto payload = std::span(bytes).first(used.value());
        EXPECT_TRUE(
            (site == 0 ? up.decode_scaled(payload, share, mean) : up.decode_accumulate(payload, share, mean)).ok());
      }
      std::vector<std::byte> bytes(down.encoded_size(chunk.size()));
      const auto used = residuals[slice.owner.value].encode_mean(chunk, mean, bytes);
      EXPECT_TRUE(down.decode(std::span(bytes).first(used.value()), mean).ok());
      f(chunk, std::span<const float>(mean));
    }
  }
}

void commit_of(Residual& residual, std::span<const float> anchor, std::span<const float> contributed,
               float taken = 1.0F) {
  const auto reader = [&](ElementRange range) -> Result<std::span<const float>> { return part_of(contributed, range); };
  EXPECT_TRUE(residual.commit(anchor, reader, taken).ok());
}

double size_of(std::span<const double> values) {
  double square = 0;
  for (const double each : values) square += each * each;
  return std::sqrt(square / static_cast<double>(values.size()));
}

// Three sites that want to move by the same deltas each round; owners and weights change. How far the sum of the means
// is from that of the exact ones, of which each has the size 1, after `rounds`.
double drift(const Codecs& codecs, bool feedback, int rounds, bool weights_change) {
  Prng random(44);
  constexpr std::uint32_t kSites = 3;
  const std::vector<float> anchor(kElements);
  std::vector<std::vector<float>> parameters;
  std::vector<Residual> residuals;
  for (std::uint32_t site = 0; site < kSites; ++site) {
    parameters.push_back(normal_vector(random, kElements, 1.0));
    residuals.emplace_back(codecs, feedback, kElements, kChunk);
  }
  std::vector<double> missing(kElements);
  for (int round = 0; round < rounds; ++round) {
    const auto moved = static_cast<std::uint64_t>(round % 5) * 1024;
    const wire::StartAttempt start =
        start_of({1, 1, weights_change ? 1.0 + 0.5 * (round % 3) : 1.0}, {0, 4096 + moved, 10240});
    for (std::uint32_t site = 0; site < kSites; ++site) {
      const double share{share_of(start, site)};
      for (std::size_t i = 0; i < kElements; ++i)
        missing[i] += share * (double{anchor[i]} - double{parameters[site][i]});
    }
    exchange(codecs, start, residuals, anchor, parameters, [&](ElementRange chunk, std::span<const float> mean) {
      for (std::size_t i = 0; i < mean.size(); ++i) missing[chunk.begin + i] -= double{mean[i]};
    });
    for (std::uint32_t site = 0; site < kSites; ++site) commit_of(residuals[site], anchor, parameters[site]);
  }
  return size_of(missing) * std::sqrt(double{kSites});  // a mean of three has the size 1 / sqrt(3)
}

TEST(Residual, NothingIsLostWhileOwnersChange) {
  const Codecs thin(CodecId::kInt4, CodecId::kInt8);
  EXPECT_LT(drift(thin, true, 20, false), 0.3);
  EXPECT_LT(drift(thin, true, 80, false), 0.3) << "what is missing does not grow";
  EXPECT_GT(drift(thin, false, 80, false), 3);
  EXPECT_LT(drift(thin, true, 80, true), 2) << "shares change what is owed a little";
}

// Three sites train on behind their rounds. All that they have trained is in the anchor, in what their parameters keep
// of the differences from the mean, or in what payloads left out; by how much these are more together than what was
// trained, as the size of an element, after 20 rounds of steps of the size 1. `told`: the commit is told what the merge
// takes of the differences.
double counted_twice(const Codecs& codecs, double factor, bool told) {
  Prng random(45);
  const std::vector<double> weights{0.5, 0.3, 0.2};
  const wire::StartAttempt start = start_of(weights, {0, 4096, 12288});
  std::vector<float> anchor(kElements);
  std::vector<std::vector<float>> parameters(weights.size(), anchor);
  std::vector<Residual> residuals;
  for (std::size_t site = 0; site < weights.size(); ++site) residuals.emplace_back(codecs, true, kElements, kChunk);
  std::vector<double> surplus(kElements);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t site = 0; site < weights.size(); ++site) {
      const std::vector<float> step = normal_vector(random, kElements, 1.0);
      for (std::size_t i = 0; i < kElements; ++i) {
        parameters[site][i] += step[i];
        surplus[i] -= weights[site] * double{step[i]};
      }
    }
    std::vector<float> next = anchor;
    exchange(codecs, start, residuals, anchor, parameters, [&](ElementRange chunk, std::span<const float> mean) {
      for (std::size_t i = 0; i < mean.size(); ++i) next[chunk.begin + i] -= mean[i];
    });
    for (std::size_t site = 0; site < weights.size(); ++site) {
      std::vector<float> values = parameters[site];
      commit_of(residuals[site], anchor, values, told ? static_cast<float>(factor) : 1.0F);
      TrainingCopy copy(values, {.merge = {MergeRule::kRebase, factor}});
      copy.begin_round(true);
      copy.displace(0, next, next);
      for (std::size_t i = 0; i < kElements; ++i) parameters[site][i] += values[i];
    }
    anchor = next;
  }
  for (std::uint32_t site = 0; site < weights.size(); ++site) {
    for (std::size_t i = 0; i < kElements; ++i) surplus[i] += weights[site] * double{parameters[site][i]};
    for (const wire::Slice& slice : start.slices) {
      const double unit = slice.owner == SiteId(site) ? 1 : weights[site];
      for (std::uint64_t i = slice.range.begin; i < slice.range.end; ++i) {
        surplus[i] -= unit * double{residuals[site].values()[i]};
      }
    }
  }
  return size_of(surplus);
}

TEST(Residual, ADifferenceThatParametersKeepIsNotAddedAgain) {
  for (const Codecs& codecs : {Codecs(CodecId::kInt4), Codecs(CodecId::kTopK64, CodecId::kInt8)}) {
    for (const double factor : {0.0, 0.5, 1.0}) {
      EXPECT_LT(counted_twice(codecs, factor, true), 1e-4) << name_of(codecs) << ", rebase:" << factor;
    }
    EXPECT_GT(counted_twice(codecs, 0.5, false), 1e-2) << name_of(codecs);
  }
}

TEST(Residual, TopKSendsEverythingInTheEnd) {
  const Codecs sparse(CodecId::kTopK128, CodecId::kInt4);
  const double early = drift(sparse, true, 100, false);
  EXPECT_LT(drift(sparse, true, 200, false), 1.5 * early);
  EXPECT_LT(drift(sparse, true, 200, false), 30) << "of 200";
  EXPECT_GT(drift(sparse, false, 200, false), 100);
}

}  // namespace
}  // namespace collab
