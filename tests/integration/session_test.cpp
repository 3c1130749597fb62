// Whole sessions over the loopback transport, against local SGD written out in plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>

#include "core/runtime/storage/state_file.h"
#include "tests/integration/by_hand.h"
#include "tests/integration/meddling.h"

namespace collab::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// anchor' = anchor - sum_i s_i * (anchor - theta_i), s_i = float(w_i / sum w), every operation rounded to float32.
std::vector<float> reference(std::size_t sites, std::size_t elements, std::size_t steps, std::size_t every) {
  std::vector<float> anchor = fresh_values(elements, 1);
  std::vector<std::vector<float>> theta(sites, anchor);
  double total = 0;
  for (std::size_t site = 0; site < sites; ++site) total += static_cast<double>(8 * (site + 1));
  const auto average = [&] {
    if (sites == 1) {  // the average of one model is that model
      anchor = theta[0];
      return;
    }
    for (std::size_t i = 0; i < elements; ++i) {
      float mean = 0;
      for (std::size_t site = 0; site < sites; ++site) {
        const auto scale = static_cast<float>(static_cast<double>(8 * (site + 1)) / total);
        const float term = scale * (anchor[i] - theta[site][i]);
        mean = site == 0 ? term : mean + term;
      }
      anchor[i] = anchor[i] - mean;
    }
    for (auto& each : theta) each = anchor;
  };
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t site = 0; site < sites; ++site) train_one_step(theta[site], site, step);
    if ((step + 1) % every == 0) average();
  }
  if (steps % every != 0) average();
  return anchor;
}

std::vector<std::string> lines_with(const std::string& path, const std::string& part) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.find(part) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

class SwarmOfSites : public ::testing::TestWithParam<std::size_t> {};

TEST_P(SwarmOfSites, Fp32EqualsLocalSgdBitForBit) {
  Swarm swarm = swarm_of(GetParam(), CodecId::kFp32);
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(10)));  // rounds at 4, 8 and at the end
  const std::vector<float> expected = reference(swarm.sites, swarm.elements, 10, 4);
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), expected);
  EXPECT_TRUE(swarm.coordinator->wait_until_empty(std::chrono::seconds(10)).ok());
}
INSTANTIATE_TEST_SUITE_P(Sites, SwarmOfSites, ::testing::Values(1, 2, 3, 5));

class SwarmWithCodec : public ::testing::TestWithParam<CodecId> {};

TEST_P(SwarmWithCodec, AllSitesEndWithTheSameParametersNearTheExactOnes) {
  Swarm swarm = swarm_of(3, GetParam());
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(10)));
  const std::vector<float> exact = reference(swarm.sites, swarm.elements, 10, 4);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(swarm.parameters[1]->values()[i], swarm.parameters[0]->values()[i]);
    EXPECT_EQ(swarm.parameters[2]->values()[i], swarm.parameters[0]->values()[i]);
    EXPECT_NEAR(swarm.parameters[0]->values()[i], exact[i], 4e-4);
  }
}
INSTANTIATE_TEST_SUITE_P(Codecs, SwarmWithCodec, ::testing::Values(CodecId::kBf16, CodecId::kFp16, CodecId::kInt8));

TEST(Session, NesterovKeepsItsStateEqualAtAllSites) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.config.outer_optimizer = OuterId::kNesterov;
  swarm.config.outer_lr = 0.7;
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(12)));
  EXPECT_EQ(swarm.parameters[0]->values(), swarm.parameters[1]->values());
  EXPECT_NE(swarm.parameters[0]->values(), reference(2, swarm.elements, 12, 4));
}

TEST(Session, TheOuterStepIsAgreedOnAndReported) {
  const std::string path = ::testing::TempDir() + "collab-outer-" + std::to_string(getpid());
  std::remove(path.c_str());
  Swarm swarm = swarm_of(2, CodecId::kInt8);
  swarm.config.outer_optimizer = OuterId::kNesterov;
  swarm.config.outer_lr = 0;  // by the sites
  swarm.config.outer_clip = 1e-4;
  swarm.config.events_file = path;
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(8)));
  EXPECT_EQ(swarm.parameters[0]->values(), swarm.parameters[1]->values());
  const std::vector<std::string> told = lines_with(path, "exchange_seconds");
  EXPECT_EQ(told.size(), 4U) << "two rounds at each of two sites";
  for (const std::string& line : told) {
    EXPECT_THAT(line, HasSubstr("\"outer_lr\":0.6,"));
    EXPECT_THAT(line, HasSubstr("\"clipped_norm\":"));
  }
  const std::vector<float> first = fresh_values(swarm.elements, 1);
  double square = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double moved = double{first[i]} - double{swarm.parameters[0]->values()[i]};
    square += moved * moved;
  }
  EXPECT_LT(std::sqrt(square), 0.6 * (1.9 + 2.71 + 1) * 1e-4) << "two steps with momentum 0.9, each of the clip's norm";
  EXPECT_GT(std::sqrt(square), 0) << "it moved";
  std::remove(path.c_str());
}

TEST(Session, BuffersAreAveragedWhateverTheOuterOptimizer) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.config.outer_optimizer = OuterId::kNesterov;
  swarm.config.outer_lr = 0.7;
  const std::size_t trained = 7'000;  // not at the edge of a chunk
  swarm.adjust = [&](SessionOptions& options, std::size_t) { options.compared_elements = trained; };
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(12)));
  const std::vector<float> averaged = reference(2, swarm.elements, 12, 4);
  const std::vector<float>& values = swarm.parameters[0]->values();
  EXPECT_TRUE(std::equal(averaged.begin() + trained, averaged.end(), values.begin() + trained));
  EXPECT_FALSE(std::equal(averaged.begin(), averaged.begin() + trained, values.begin()));
  EXPECT_EQ(swarm.parameters[1]->values(), values);
}

TEST(Session, RanksOfASiteTakeTheRoundFromTheArena) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.config.run = "ranks-" + std::to_string(getpid());
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(10)));
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), swarm.parameters[0]->values());
  // Twice the samples at both sites: the same weights, so the same numbers.
  EXPECT_EQ(swarm.parameters[0]->values(), reference(2, swarm.elements, 10, 4));
}

TEST(Session, RanksOnSeveralHostsTakeTheRoundFromTheSitesGroup) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = false; };
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(10)));
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), reference(2, 10'000, 10, 4));
}

struct RanksOfASite {
  std::size_t ranks;
  bool one_host;
};
class RoundsByTime : public ::testing::TestWithParam<RanksOfASite> {};

TEST_P(RoundsByTime, AreAtTheSameStepOnAllRanks) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = GetParam().ranks;
  swarm.config.run = "time-" + std::to_string(getpid());
  swarm.config.sync_every = {.steps = 0, .time = std::chrono::milliseconds(100)};
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = GetParam().one_host; };
  swarm.start_coordinator();
  std::vector<std::unique_ptr<std::barrier<>>> gradients;  // are averaged over the site before any rank steps
  for (int site = 0; site < 2; ++site) {
    gradients.push_back(std::make_unique<std::barrier<>>(static_cast<std::ptrdiff_t>(swarm.ranks)));
  }
  expect_all_ok(swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    std::size_t step = 0;
    for (int rounds = 0; rounds < 4; ++step) {
      gradients[site]->arrive_and_wait();
      train_one_step(values, site, step);
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      rounds += outcome->round_ran ? 1 : 0;
    }
    EXPECT_GT(step, 8U);
    return session.finish();
  }));
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), swarm.parameters[0]->values());
}
INSTANTIATE_TEST_SUITE_P(Ranks, RoundsByTime,
                         ::testing::Values(RanksOfASite{1, true}, RanksOfASite{2, true}, RanksOfASite{2, false}));

TEST(Session, RanksWithDifferentVectorsAreRefusedByName) {
  Swarm swarm = swarm_of(1, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.config.run = "differ-" + std::to_string(getpid());
  swarm.start_coordinator();
  swarm.parameters[1]->values()[77] += 1;
  const std::vector<Status> results = swarm.run(train(1));
  for (const Status& status : results) EXPECT_THAT(status.message(), HasSubstr("rank 1 of site site0 holds other"));
}

TEST(Session, NotANumberIsLeftOutAndItsSiteTakesTheAnchor) {
  Swarm swarm = swarm_of(2, CodecId::kFp16);
  swarm.start_coordinator();
  expect_all_ok(swarm.run([](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    for (std::size_t step = 0; step < 4; ++step) {
      train_one_step(values, site, step);
      if (site == 1 && step == 3) values[123] = std::numeric_limits<float>::quiet_NaN();
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      EXPECT_EQ(outcome->took_anchor, site == 1 && step == 3);
    }
    return session.finish();
  }));
  EXPECT_EQ(swarm.parameters[0]->values(), swarm.parameters[1]->values());
  EXPECT_TRUE(std::isfinite(swarm.parameters[1]->values()[123]));
}

TEST(Session, DifferentSettingsAreRefusedWithBothSides) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.config.join_timeout = std::chrono::seconds(3);
  swarm.adjust = [](SessionOptions& options, std::size_t site) {
    if (site == 1) options.model = {{"weights", "bfloat16", {10'000}, TensorKind::kAveraged, {}}};
  };
  swarm.start_coordinator();
  const std::vector<Status> results = swarm.run(train(1));
  const std::string said = results[0].message() + results[1].message();
  EXPECT_THAT(said, HasSubstr("bfloat16"));
  EXPECT_THAT(said, HasSubstr("float32"));
}

TEST(Session, ReportsTheCoordinatorThatDoesNotAnswerAfterTheTimeout) {
  Swarm swarm = swarm_of(1, CodecId::kFp32);
  swarm.config.join_timeout = std::chrono::milliseconds(500);
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.coordinators = {"nowhere:4711"}; };
  swarm.start_coordinator();
  const std::vector<Status> results = swarm.run(train(1));
  EXPECT_THAT(results[0].message(), HasSubstr("nowhere:4711"));
}

TEST(Session, TheStateOnDiskOutlivesTheSwarm) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("collab-state-" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  std::vector<float> first_end;
  for (int life = 0; life < 2; ++life) {
    Swarm swarm = swarm_of(2, CodecId::kFp32);
    swarm.config.state_dir = dir.string();
    swarm.start_coordinator();
    if (life == 0) {
      expect_all_ok(swarm.run(train(8)));
      first_end = swarm.parameters[0]->values();
    } else {
      expect_all_ok(swarm.run([&](Session& session, std::size_t, std::vector<float>& values) -> Status {
        EXPECT_EQ(values, first_end) << "a fresh script's own values never win over a saved anchor";
        EXPECT_EQ(session.status().round, RoundId(2));
        return session.finish();
      }));
    }
  }
  Swarm other = swarm_of(1, CodecId::kFp32);
  other.config.state_dir = dir.string();
  other.config.run = "another";
  other.start_coordinator();
  const std::vector<Status> refused = other.run(train(1));
  EXPECT_THAT(refused[0].message(), HasSubstr("belongs to run default, but this is run another"));
  other.adjust = [](SessionOptions& options, std::size_t) { options.run_of_rendezvous = true; };
  expect_all_ok(other.run([&](Session& session, std::size_t, std::vector<float>& values) -> Status {
    EXPECT_EQ(values, first_end) << "nobody has said that this is another training";
    return session.finish();
  }));
  std::filesystem::remove_all(dir);
}

TEST(Session, WarnsOfACheckpointThatAStateOnDiskOverrides) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("collab-checkpoint-" + std::to_string(getpid()));
  std::vector<float> end;
  const auto live = [&](bool resumed, const std::vector<float>& loaded) {
    Swarm swarm = swarm_of(1, CodecId::kFp32);
    swarm.config.state_dir = dir.string();
    swarm.adjust = [&](SessionOptions& options, std::size_t) { options.resumed = resumed; };
    swarm.start_coordinator();
    if (!loaded.empty()) swarm.parameters[0]->values() = loaded;
    ::testing::internal::CaptureStderr();
    expect_all_ok(swarm.run(train(4)));
    end = swarm.parameters[0]->values();
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(live(true, {}), Not(HasSubstr("[state.before-checkpoint]"))) << "there is no state yet";
  EXPECT_THAT(live(true, end), Not(HasSubstr("[state.before-checkpoint]"))) << "it is the same";
  EXPECT_THAT(live(false, {}), Not(HasSubstr("[state.before-checkpoint]")))
      << "a fresh model, as each script makes one";
  EXPECT_THAT(live(true, {}),
              AllOf(HasSubstr("goes on from the anchor of round 3 in " + dir.string() + "/site0.collab"),
                    HasSubstr("[state.before-checkpoint]")));
  std::filesystem::remove_all(dir);
}

class TwoRanks : public ::testing::TestWithParam<bool> {};  // are those of a site on one host?
INSTANTIATE_TEST_SUITE_P(OneHost, TwoRanks, ::testing::Bool());

// As stochastic rounding does, with a seed of each rank's own.
TEST_P(TwoRanks, ARankThatDiffersByARoundingIsReportedOnceAndTakesTheRound) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.config.run = "rounding-" + std::to_string(getpid());
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = GetParam(); };
  swarm.start_coordinator();
  ::testing::internal::CaptureStderr();
  const std::vector<Status> results =
      swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
        for (std::size_t step = 0; step < 10; ++step) {
          train_one_step(values, site, step);
          if (&values == &swarm.parameters[3]->values()) values[77] = std::nextafter(values[77], 1.0F);
          const Result<StepOutcome> outcome = session.step(8 * (site + 1));
          if (!outcome.ok()) return outcome.status();
        }
        return session.finish();
      });
  const std::string told = ::testing::internal::GetCapturedStderr();
  expect_all_ok(results);
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), reference(2, 10'000, 10, 4));
  const std::string line = "rank 1 of site site1 holds other parameters than its rank 0";
  const std::size_t first = told.find(line);
  ASSERT_NE(first, std::string::npos) << told;
  EXPECT_EQ(told.find(line, first + 1), std::string::npos) << "three rounds, one line: " << told;
  EXPECT_THAT(told.substr(first), HasSubstr("[round.ranks-differ]"));
}

// Ten rounds' worth at one of the sites, which trains on alone when it is gone. Rounds come as often as ever, for all.
TEST_P(TwoRanks, ABudgetIsNeverOverspentAndNeverStopsTheTraining) {
  Swarm swarm;
  swarm.ranks = 2;
  swarm.config.codec = CodecId::kFp32;
  swarm.config.sync_every = {.steps = 2, .time = {}};
  swarm.config.weight = WeightBy::kEqual;
  const double round_gb = 40'500e-9;
  swarm.adjust = [&](SessionOptions& options, std::size_t site) {
    options.layout.one_host = GetParam();
    if (site == 1) options.config.egress_budget_gb = 10 * round_gb;
  };
  const std::string path = ::testing::TempDir() + "collab-budget-" + std::to_string(getpid());
  std::remove(path.c_str());
  swarm.config.events_file = path;
  swarm.start_coordinator();
  std::vector<std::size_t> rounds_at;  // steps of the second site's leader
  std::vector<std::size_t> of_the_other;
  std::uint64_t sent = 0;
  constexpr std::size_t kSteps = 60;
  std::vector<std::unique_ptr<std::barrier<>>> gradients;  // are averaged over the site before any rank steps
  for (int each = 0; each < 2; ++each) gradients.push_back(std::make_unique<std::barrier<>>(2));
  expect_all_ok(swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    const bool watched = &values == &swarm.parameters[2]->values();
    for (std::size_t step = 0; step < kSteps; ++step) {
      gradients[site]->arrive_and_wait();
      train_one_step(values, site, step);
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      if (watched && outcome->round_ran) rounds_at.push_back(step + 1);
      if (&values == &swarm.parameters[0]->values() && outcome->round_ran) of_the_other.push_back(step + 1);
      if (watched && outcome->round_ran) sent = std::max(sent, session.status().bytes_sent);
    }
    return session.finish();
  }));
  ASSERT_GE(rounds_at.size(), 8U);
  EXPECT_LE(rounds_at.size(), 10U);
  EXPECT_LT(rounds_at.back(), kSteps);
  EXPECT_LE(static_cast<double>(sent), 10 * round_gb * 1e9);
  EXPECT_GT(static_cast<double>(sent), 6 * round_gb * 1e9);
  for (std::size_t i = 0; i < rounds_at.size(); ++i) EXPECT_EQ(rounds_at[i], 2 * (i + 1));
  EXPECT_EQ(of_the_other.size(), kSteps / 2) << "the other goes on";
  const std::vector<std::string> told = lines_with(path, "\"event\":\"budget\"");
  ASSERT_EQ(told.size(), 3U) << "at 50 % and 80 %, and when the next round does not fit";
  EXPECT_THAT(told[0], HasSubstr("50 % of this site's egress budget is spent: "));
  EXPECT_THAT(told[0], HasSubstr("\"rounds_left\":"));
  EXPECT_THAT(told[1], HasSubstr("80 % of this site's egress budget is spent: "));
  EXPECT_THAT(told[2], HasSubstr("what is left of this site's egress budget is too little for another round: "));
  for (const std::string& line : told) EXPECT_THAT(line, HasSubstr("\"site\":\"site1\""));
  std::remove(path.c_str());
  EXPECT_EQ(swarm.parameters[2]->values(), swarm.parameters[3]->values()) << "the ranks of a site stay one model";
  EXPECT_EQ(swarm.parameters[0]->values(), swarm.parameters[1]->values());
  EXPECT_NE(swarm.parameters[0]->values(), swarm.parameters[2]->values());
}

TEST(Session, ASpentBudgetIsRememberedOnDisk) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("collab-budget-" + std::to_string(getpid()));
  for (const bool again : {false, true}) {
    Swarm swarm;
    swarm.config.codec = CodecId::kFp32;
    swarm.config.sync_every = {.steps = 2, .time = {}};
    swarm.config.state_dir = dir.string();
    swarm.adjust = [](SessionOptions& options, std::size_t site) {
      if (site == 1) options.config.egress_budget_gb = 2.5 * 40'500e-9;
    };
    swarm.start_coordinator();
    std::atomic<std::size_t> rounds[2] = {};
    expect_all_ok(swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
      for (std::size_t step = 0; step < 40; ++step) {
        train_one_step(values, site, step);
        const Result<StepOutcome> outcome = session.step(8);
        if (!outcome.ok()) return outcome.status();
        rounds[site] += outcome->round_ran ? 1 : 0;
      }
      return session.finish();
    }));
    EXPECT_EQ(rounds[1], again ? 0U : 2U) << "what is left does not pay for another";
    EXPECT_GT(rounds[0], 10U);
  }
  std::filesystem::remove_all(dir);
}

TEST(Session, TheSameDataAtTwoSitesIsReportedToBoth) {
  const std::string path = ::testing::TempDir() + "collab-same-data-" + std::to_string(getpid());
  Swarm swarm = swarm_of(3, CodecId::kFp16);
  swarm.config.events_file = path;
  swarm.start_coordinator();
  expect_all_ok(swarm.run([](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    for (std::size_t step = 0; step < 16; ++step) {
      train_one_step(values, site == 2 ? 0 : site, step);  // as site 0 does
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
    }
    return session.finish();
  }));
  std::ifstream file(path);
  std::map<std::string, int> told;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"event\":\"same-data\"") == std::string::npos) continue;
    EXPECT_THAT(line, HasSubstr("site0 and site2 have learned the same"));
    for (const std::string site : {"site0", "site1", "site2"}) {
      told[site] += line.find("\"site\":\"" + site + "\"") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_EQ(told["site0"], 1);
  EXPECT_EQ(told["site1"], 0);
  EXPECT_EQ(told["site2"], 1);
  std::remove(path.c_str());
}

TEST(Session, EventsTellOfEachRound) {
  const std::string path = ::testing::TempDir() + "collab-events-" + std::to_string(getpid());
  Swarm swarm = swarm_of(2, CodecId::kInt8);
  swarm.config.events_file = path;
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(8)));
  std::ifstream file(path);
  std::size_t rounds = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"event\":\"round\"") == std::string::npos || line.find("exchange_seconds") == std::string::npos) {
      continue;
    }
    ++rounds;
    EXPECT_THAT(line, HasSubstr("\"members\":[\"site0\",\"site1\"]"));
    EXPECT_THAT(line, HasSubstr("\"codec\":\"int8\""));
    EXPECT_THAT(line, HasSubstr("\"transport\":\"loopback\""));
  }
  EXPECT_EQ(rounds, 4U) << "two rounds at each of two sites";
  std::remove(path.c_str());
}

TEST_F(ByHand, ASiteTrainsOnWhileTheOtherIsDeadAndBothAgreeAfterItsReturn) {
  start(2);
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  const std::vector<float> anchor = values(0);
  sessions_[1].reset();
  EXPECT_FALSE(interval(0));
  EXPECT_FALSE(interval(0));
  std::vector<float> alone = anchor;
  for (std::size_t step = 4; step < 12; ++step) train_one_step(alone, 0, step);
  EXPECT_EQ(values(0), alone) << "nothing but its own steps has moved it";

  values(1) = fresh_values(swarm_.elements, 99);
  begin(1);
  EXPECT_EQ(values(1), anchor) << "the anchor has stood";
  std::vector<float> other = anchor;
  for (std::size_t step = 4; step < 8; ++step) train_one_step(other, 1, step);
  for (std::size_t step = 12; step < 16; ++step) train_one_step(alone, 0, step);
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  EXPECT_EQ(values(0), values(1));
  std::vector<double> expected(anchor.size());  // 12 steps of the one against 4 of the other
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = 0.75 * static_cast<double>(alone[i]) + 0.25 * static_cast<double>(other[i]);
  }
  expect_near(values(0), expected);
  finish_all();
}

TEST_F(ByHand, AStragglerIsLeftOutAndItsStepsCountInTheNextRound) {
  start(3);
  const std::vector<float> first = values(0);
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });  // without the third
  const std::vector<float> second = values(0);
  EXPECT_EQ(values(1), second);
  std::vector<std::vector<float>> theta{second, second, first};
  for (std::size_t step = 0; step < 4; ++step) {
    train_one_step(theta[0], 0, step + 4);
    train_one_step(theta[1], 1, step + 4);
    train_one_step(theta[2], 2, step);
  }
  // The last comes first, with the anchor of before; the others follow while it still waits.
  std::thread straggler([this] { EXPECT_TRUE(interval(2)); });
  wait_until_one_is_ready();
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  straggler.join();
  EXPECT_EQ(values(0), values(1));
  EXPECT_EQ(values(0), values(2));
  std::vector<double> expected(first.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double late =
        static_cast<double>(second[i]) + static_cast<double>(theta[2][i]) - static_cast<double>(first[i]);
    expected[i] = (static_cast<double>(theta[0][i]) + static_cast<double>(theta[1][i]) + late) / 3;
  }
  expect_near(values(2), expected);
  finish_all();
}

}  // namespace
}  // namespace collab::testing
