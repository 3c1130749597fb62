// `rda` through whole sessions: all sites hold one anchor, and it is where the formula says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/base/prng.h"
#include "core/protocol/fragments.h"
#include "tests/integration/by_hand.h"

namespace collab::testing {
namespace {

constexpr std::size_t kElements = 30'000;
constexpr std::size_t kTrained = 29'000;
const std::vector<TensorInfo> kModel{{"wte.weight", "float32", {4'000}, TensorKind::kAveraged, {}},
                                     {"h.0.weight", "float32", {100, 200}, TensorKind::kAveraged, {}},
                                     {"h.0.bias", "float32", {7}, TensorKind::kAveraged, {}},
                                     {"h.1.weight", "float32", {4'993}, TensorKind::kAveraged, {}},
                                     {"running_mean", "float32", {1'000}, TensorKind::kAveraged, {}}};
const std::vector<ElementRange> kTensors{{4'000, 24'000}, {24'000, 24'007}, {24'007, kTrained}};

// One direction of all sites, and one of its own.
std::vector<float> delta_of(std::size_t site) {
  Prng common(70);
  Prng own(71 + site);
  std::vector<float> delta(kElements);
  for (float& each : delta) {
    const double shared = 4e-4 * (common.uniform() - 0.5);
    each = static_cast<float>(shared + 1e-3 * (own.uniform() + own.uniform() + own.uniform() - 1.5));
  }
  return delta;
}

struct Case {
  std::string name;
  Codecs codecs;
  std::size_t sites = 2;
  std::size_t ranks = 1;
  std::uint32_t fragments = 1;
  std::size_t steps = 3;
  double off = 1e-6;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

// Site i has i + 1 parts of the weight.
std::vector<double> expected_move(const Case& now) {
  std::vector<std::vector<float>> deltas;
  const double total = static_cast<double>(now.sites * (now.sites + 1)) / 2;
  for (std::size_t site = 0; site < now.sites; ++site) deltas.push_back(delta_of(site));
  const auto share = [&](std::size_t site) { return static_cast<double>(site + 1) / total; };
  std::vector<double> move(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    for (std::size_t site = 0; site < now.sites; ++site) move[i] += share(site) * double{deltas[site][i]};
  }
  for (const ElementRange& tensor : kTensors) {
    for (std::uint32_t f = 0; f < now.fragments; ++f) {
      const ElementRange part = common(tensor, protocol::Fragments{now.fragments}.range(kElements, f));
      double norms = 0;
      double of_mean = 0;
      for (std::size_t i = part.begin; i < part.end; ++i) of_mean += move[i] * move[i];
      for (std::size_t site = 0; site < now.sites; ++site) {
        double square = 0;
        for (std::size_t i = part.begin; i < part.end; ++i) square += double{deltas[site][i]} * double{deltas[site][i]};
        norms += share(site) * std::sqrt(square);
      }
      const double most = std::sqrt(static_cast<double>(now.sites));
      const double factor = part.size() == 0 ? 1 : std::clamp(norms / std::sqrt(of_mean), 1.0, most);
      if (now.sites > 1 && part.size() > 1'000) {
        EXPECT_GT(factor, 1.1);
      }
      for (std::size_t i = part.begin; i < part.end; ++i) move[i] *= factor;
    }
  }
  return move;
}

class RadialSwarm : public ::testing::TestWithParam<Case> {};

TEST_P(RadialSwarm, AllSitesHoldTheAnchorOfTheFormula) {
  const Case& now = GetParam();
  Swarm swarm = swarm_of(now.sites, now.codecs.up);
  swarm.ranks = now.ranks;
  swarm.elements = kElements;
  swarm.config.codec = now.codecs;
  swarm.config.outer_optimizer = OuterId::kRda;
  swarm.config.fragments = now.fragments;
  swarm.config.sync_every = {.steps = now.fragments, .time = {}};  // a round each step
  swarm.config.chunk_kib = 16;
  swarm.config.run = "radial-" + now.name + "-" + std::to_string(getpid());
  swarm.adjust = [](SessionOptions& options, std::size_t) {
    options.model = kModel;
    options.compared_elements = kTrained;
  };
  swarm.start_coordinator();
  const auto statuses = swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    const std::vector<float> delta = delta_of(site);
    for (std::size_t step = 0; step < now.steps; ++step) {
      for (std::size_t i = 0; i < kElements; ++i) values[i] -= delta[i];
      const Result<StepOutcome> outcome = session.step(8 * (site + 1));
      if (!outcome.ok()) return outcome.status();
    }
    return session.finish();
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  const std::vector<float>& got = swarm.parameters[0]->values();
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), got);
  const std::vector<float> first = fresh_values(kElements, 1);
  const std::vector<double> move = expected_move(now);
  for (std::size_t i = 0; i < kElements; ++i) {
    ASSERT_NEAR(got[i], double{first[i]} - static_cast<double>(now.steps) * move[i], now.off) << "element " << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, RadialSwarm,
                         ::testing::Values(Case{"two", CodecId::kFp32}, Case{"three", CodecId::kFp32, 3},
                                           Case{"hosts", CodecId::kFp32, 2, 2}, Case{"alone", CodecId::kFp32, 1},
                                           Case{"fragments", CodecId::kFp32, 2, 1, 3, 6},
                                           Case{"int8", CodecId::kInt8, 2, 1, 1, 3, 1e-4}),
                         [](const auto& made) { return made.param.name; });

}  // namespace
}  // namespace collab::testing
