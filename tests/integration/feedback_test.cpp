// Error feedback through whole sessions: thin codecs bring the sites to where the exact mean would, given rounds.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "core/base/digest.h"
#include "core/base/prng.h"
#include "tests/integration/by_hand.h"
#include "tests/integration/meddling.h"

namespace collab::testing {
namespace {

std::vector<float> delta_of(std::size_t site, std::size_t elements) {
  Prng random(70 + site);
  std::vector<float> delta(elements);
  for (float& each : delta) {
    each = static_cast<float>(1e-3 * (random.uniform() + random.uniform() + random.uniform() - 1.5));
  }
  return delta;
}

struct Case {
  std::string name;
  Codecs codecs;
  bool feedback = true;
  std::size_t rounds = 40;
  double most = 1;  // relative error of the way the anchor has gone
  double least = 0;
  double decay = 1;
  std::string kept = "none";
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class ConstantDeltas : public ::testing::TestWithParam<Case> {};

TEST_P(ConstantDeltas, LeadWhereTheirExactMeanDoes) {
  const Case& now = GetParam();
  Swarm swarm = swarm_of(3, now.codecs.up);
  swarm.config.codec = now.codecs;
  swarm.config.error_feedback = now.feedback;
  swarm.config.feedback_decay = now.decay;
  swarm.config.keep_fp16 = now.kept;
  swarm.config.sync_every = {.steps = 1, .time = {}};
  swarm.config.chunk_kib = 16;
  swarm.elements = 5 * 4096 + 100;
  swarm.start_coordinator();
  expect_all_ok(swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    const std::vector<float> delta = delta_of(site, values.size());
    for (std::size_t round = 0; round < now.rounds; ++round) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] -= delta[i];
      const Result<StepOutcome> outcome = session.step(8 * (site + 1));
      if (!outcome.ok()) return outcome.status();
      EXPECT_TRUE(outcome->round_ran);
    }
    return session.finish();
  }));
  const std::vector<float>& got = swarm.parameters[0]->values();
  EXPECT_EQ(swarm.parameters[1]->values(), got);
  EXPECT_EQ(swarm.parameters[2]->values(), got);
  const std::vector<float> first = fresh_values(swarm.elements, 1);
  const std::vector<float> deltas[] = {delta_of(0, got.size()), delta_of(1, got.size()), delta_of(2, got.size())};
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double mean = (double{deltas[0][i]} + 2 * double{deltas[1][i]} + 3 * double{deltas[2][i]}) / 6;
    const double went = (double{first[i]} - double{got[i]}) / static_cast<double>(now.rounds);
    error += (went - mean) * (went - mean);
    norm += mean * mean;
  }
  const double relative = std::sqrt(error / norm);
  RecordProperty("relative_error", std::to_string(relative));
  EXPECT_LT(relative, now.most);
  EXPECT_GT(relative, now.least);
}
INSTANTIATE_TEST_SUITE_P(
    Codecs, ConstantDeltas,
    ::testing::Values(Case{"int8", CodecId::kInt8, true, 20, 0.001}, Case{"int4", CodecId::kInt4, true, 40, 0.01},
                      Case{"int4_all_decayed", CodecId::kInt4, true, 40, 1, 0.05, 0},
                      Case{"int4_without", CodecId::kInt4, false, 40, 1, 0.05},
                      Case{"int4_up", {CodecId::kInt4, CodecId::kInt8}, true, 40, 0.01},
                      Case{"fp16_up", {CodecId::kFp16, CodecId::kInt4}, true, 40, 0.01},
                      Case{"int4_kept", CodecId::kInt4, false, 20, 0.001, 0, 1, "weights"},
                      Case{"topk64_small", CodecId::kTopK64, true, 20, 0.001, 0, 1, "small,absent"},
                      Case{"int2", CodecId::kInt2, true, 80, 0.04},
                      Case{"topk64_up", {CodecId::kTopK64, CodecId::kInt8}, true, 400, 0.2},
                      Case{"topk64_up_without", {CodecId::kTopK64, CodecId::kInt8}, false, 100, 1, 0.7},
                      Case{"topk128_both", CodecId::kTopK128, true, 400, 0.3}),
    [](const auto& made) { return made.param.name; });

// Batch statistics follow each site's data between rounds: their mean stays between the least and the largest of them.
TEST(Feedback, ARunningStatisticIsAveragedAsItIs) {
  constexpr std::size_t kTrained = 4'000;
  for (const bool overlap : {false, true}) {
    Swarm swarm = swarm_of(3, CodecId::kTopK64);
    swarm.config.codec.down = CodecId::kInt8;
    swarm.config.overlap = overlap;
    swarm.config.sync_every = {.steps = 1, .time = {}};
    swarm.adjust = [](SessionOptions& options, std::size_t) { options.compared_elements = kTrained; };
    swarm.start_coordinator();
    expect_all_ok(swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
      std::ranges::fill(std::span(values).subspan(kTrained), 1.0F);
      for (std::size_t step = 0; step < 60; ++step) {
        train_one_step(values, site, step);
        const float seen = 0.01F * static_cast<float>(site + 1);  // at this site, the variance
        for (std::size_t i = kTrained; i < values.size(); ++i) values[i] += 0.1F * (seen - values[i]);
        const Result<StepOutcome> outcome = session.step(8);
        if (!outcome.ok()) return outcome.status();
      }
      return session.finish();
    }));
    // A merge takes the mean of what stood at the trigger: what it has followed since is lost, and steps are fast here.
    const float most = overlap ? 1.0F : 0.04F;
    const auto& got = swarm.parameters[0]->values();
    for (std::size_t i = kTrained; i < got.size(); ++i) {
      ASSERT_GT(got[i], 0.01F) << "element " << i << (overlap ? ", behind the training" : "");
      ASSERT_LT(got[i], most) << "element " << i << (overlap ? ", behind the training" : "");
    }
  }
}

// The owner names the sender, and another attempt is formed; nobody waits for a time-out.
TEST_F(ByHand, APayloadNoEncoderWritesCostsAnAttemptNotTheRound) {
  std::atomic<bool> armed = false;
  std::atomic<int> sent = 0;
  swarm_.adjust = [&](SessionOptions& options, std::size_t site) {
    options.make_transport = [&, site]() -> Result<std::unique_ptr<Transport>> {
      auto meddle = [&armed, &sent, site](Meddling&, LinkId, TransportMessage& message, std::uint64_t) {
        std::optional<wire::Chunk> chunk = chunk_of(message);
        if (!armed || !chunk || chunk->kind != wire::ChunkKind::kContribution || site != 1 || sent++ > 0) return true;
        const BufferPtr bad = make_buffer_pool()->take(message.payload->bytes().size());
        std::ranges::fill(bad->bytes(), std::byte{255});
        chunk->payload_hash = hash64(bad->view());
        message.head = wire::encode(*chunk);
        message.payload = bad;
        return true;
      };
      return std::unique_ptr<Transport>(std::make_unique<Meddling>(swarm_.transport(), std::move(meddle)));
    };
  };
  start(2, [](Config& config) { config.codec = {CodecId::kTopK64, CodecId::kInt4}; });
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  armed = true;
  const auto began = std::chrono::steady_clock::now();
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15)) << "before the round's time-out";
  EXPECT_GT(sent, 2) << "what was spoilt was sent again";
  EXPECT_EQ(values(0), values(1));
  finish_all();
}

// Eight steps, then eight in other processes: bit for bit the sixteen of one.
TEST(Feedback, TheResidualOutlivesTheProcessOnDisk) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("collab-residual-" + std::to_string(getpid()));
  const auto steps = [](std::size_t from, std::size_t to) {
    return [from, to](Session& session, std::size_t site, std::vector<float>& values) -> Status {
      for (std::size_t step = from; step < to; ++step) {
        train_one_step(values, site, step);
        const Result<StepOutcome> outcome = session.step(8);
        if (!outcome.ok()) return outcome.status();
      }
      return session.finish();
    };
  };
  const auto swarm_with = [&](bool keeps) {
    Swarm swarm = swarm_of(3, CodecId::kInt4);
    if (keeps) swarm.config.state_dir = dir.string();
    return swarm;
  };
  Swarm whole = swarm_with(false);
  whole.start_coordinator();
  expect_all_ok(whole.run(steps(0, 16)));
  for (const bool again : {false, true}) {
    Swarm part = swarm_with(true);
    part.start_coordinator();
    expect_all_ok(part.run(again ? steps(8, 16) : steps(0, 8)));
    EXPECT_EQ(part.parameters[0]->values() == whole.parameters[0]->values(), again);
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace collab::testing
