// The steps from round to round that the swarm's leader tells, as whole sessions follow it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <vector>

#include "tests/integration/by_hand.h"
#include "tests/integration/meddling.h"

namespace collab::testing {
namespace {

class PeriodOfTwoRanks : public ::testing::TestWithParam<bool> {};  // are those of a site on one host?
INSTANTIATE_TEST_SUITE_P(OneHost, PeriodOfTwoRanks, ::testing::Bool());

// After these steps, at each of four ranks.
void expect_rounds_at(Swarm& swarm, const std::vector<std::size_t>& expected) {
  std::mutex mutex;
  std::map<const void*, std::vector<std::size_t>> rounds_at;  // steps, by rank
  expect_all_ok(swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    for (std::size_t step = 1; step <= 20; ++step) {
      train_one_step(values, site, step);
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      const std::lock_guard lock(mutex);
      if (outcome->round_ran) rounds_at[&session].push_back(step);
    }
    return session.finish();
  }));
  EXPECT_EQ(rounds_at.size(), 4U);
  for (const auto& [rank, steps] : rounds_at) EXPECT_EQ(steps, expected);
}

// Whatever it is, every rank follows it.
TEST_P(PeriodOfTwoRanks, ThePeriodToTheNextRoundIsThatOfTheCommit) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.config.sync_every = {.steps = 2, .time = {}, .automatic = true};
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = GetParam(); };
  const auto plain = swarm.transport;
  swarm.transport = [plain] {
    const auto every_sixth = [](Meddling&, LinkId, TransportMessage& message, std::uint64_t) {
      Result<wire::Message> sent = wire::decode(message.head);
      if (!sent.ok() || !std::holds_alternative<wire::Commit>(*sent)) return true;
      std::get<wire::Commit>(*sent).period = 6;
      message.head = wire::encode(*sent);
      return true;
    };
    return std::make_unique<Meddling>(plain(), every_sixth, Lane::kControl);
  };
  swarm.start_coordinator();
  swarm.transport = plain;
  expect_rounds_at(swarm, {2, 8, 14, 20});
}

// Four ranks with batches of 8 are 32 samples a step.
TEST_P(PeriodOfTwoRanks, ARoundIsDueByTheSamplesOfAllSites) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.config.sync_every = {.steps = 2, .time = {}, .automatic = true, .samples = 192};
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = GetParam(); };
  swarm.start_coordinator();
  expect_rounds_at(swarm, {2, 8, 14, 20});
}

// A step takes microseconds here, a round far longer: the leader makes the period long, and all ranks follow.
TEST_P(PeriodOfTwoRanks, TheLeaderChoosesThePeriodFromTheSitesMeasurements) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.config.sync_every = {.steps = 2, .time = {}, .automatic = true};
  swarm.config.target_overhead = 0.5;
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = GetParam(); };
  swarm.start_coordinator();
  std::mutex mutex;
  std::map<const void*, std::vector<std::size_t>> rounds_at;  // steps, by rank
  expect_all_ok(swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    std::size_t rounds = 0;
    for (std::size_t step = 1; rounds < 5; ++step) {
      train_one_step(values, site, step);
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      if (!outcome->round_ran) continue;
      ++rounds;
      const std::lock_guard lock(mutex);
      rounds_at[&session].push_back(step);
    }
    return session.finish();
  }));
  ASSERT_EQ(rounds_at.size(), 4U);
  const std::vector<std::size_t>& first = rounds_at.begin()->second;
  for (const auto& [rank, steps] : rounds_at) EXPECT_EQ(steps, first);
  EXPECT_EQ(first[0], 2U);
  EXPECT_EQ(first[1], 4U) << "no round was measured before the second";
  EXPECT_GT(first.back() - first[1], 2 * (first.size() - 2)) << "a step that the machine held up may cost one of them";
}

}  // namespace
}  // namespace collab::testing
