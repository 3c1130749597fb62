// COLLAB_FRAGMENTS: whole sessions in which parts of the model take turns, against the same written out in plain loops.
#include "core/protocol/fragments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "tests/integration/by_hand.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr std::uint32_t kFragments = 3;

// Local SGD in which each fragment is averaged by itself, every operation rounded to float32. Weights are as the sites'
// batches, for each fragment has been trained equally long everywhere.
class PlainFragments {
 public:
  PlainFragments(std::size_t sites, std::size_t elements)
      : anchor_(fresh_values(elements, 1)), theta_(sites, anchor_) {}

  Values run(std::size_t steps, std::size_t between_rounds) {
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t site = 0; site < theta_.size(); ++site) train_one_step(theta_[site], site, step);
      if ((step + 1) % between_rounds == 0) average();
    }
    // All of them are averaged when training ends. One that was averaged at the last step has nothing new by then.
    for (std::size_t turn = 0; turn < kFragments; ++turn) average();
    return anchor_;
  }

 private:
  void average() {
    const auto [begin, end] = protocol::Fragments{kFragments}.range_of(anchor_.size(), RoundId{++round_});
    double total = 0;
    for (std::size_t site = 0; site < theta_.size(); ++site) total += static_cast<double>(8 * (site + 1));
    for (std::size_t i = begin; i < end; ++i) {
      float mean = 0;
      for (std::size_t site = 0; site < theta_.size(); ++site) {
        const auto scale = static_cast<float>(static_cast<double>(8 * (site + 1)) / total);
        const float term = scale * (anchor_[i] - theta_[site][i]);
        mean = site == 0 ? term : mean + term;
      }
      anchor_[i] = theta_.size() == 1 ? theta_[0][i] : anchor_[i] - mean;
      for (Values& theta : theta_) theta[i] = anchor_[i];
    }
  }

  Values anchor_;
  std::vector<Values> theta_;
  std::uint64_t round_ = 0;
};

Swarm in_fragments(std::size_t sites, CodecId codec = CodecId::kFp32) {
  Swarm swarm = swarm_of(sites, codec);
  swarm.config.fragments = kFragments;
  swarm.config.sync_every = {.steps = 7, .time = {}};  // a round every two steps
  return swarm;
}

struct Shape {
  std::size_t sites = 2;
  std::size_t ranks = 1;
  bool one_host = true;
  std::size_t steps = 10;
};
class FragmentsOfSites : public ::testing::TestWithParam<Shape> {};

TEST_P(FragmentsOfSites, EachFragmentIsLocalSgdBitForBit) {
  const auto [sites, ranks, one_host, steps] = GetParam();
  Swarm swarm = in_fragments(sites);
  swarm.ranks = ranks;
  swarm.config.run = "fragments-" + std::to_string(getpid());
  swarm.adjust = [one_host = one_host](SessionOptions& options, std::size_t) { options.layout.one_host = one_host; };
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(steps)));
  const Values expected = PlainFragments(sites, swarm.elements).run(steps, 2);
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), expected);
}
INSTANTIATE_TEST_SUITE_P(Shapes, FragmentsOfSites,
                         ::testing::Values(Shape{1}, Shape{2}, Shape{3, 1, true, 11}, Shape{2, 2, true, 9},
                                           Shape{2, 2, false, 11}));

TEST(FragmentsOfASwarm, WithOuterStateAndALossyCodecSitesEndWithOneModel) {
  for (const bool overlap : {false, true}) {
    Swarm swarm = in_fragments(3, CodecId::kInt8);
    swarm.config.overlap = overlap;
    swarm.config.outer_optimizer = OuterId::kNesterov;
    swarm.config.outer_lr = 0.7;
    swarm.start_coordinator();
    expect_all_ok(swarm.run(train(20)));
    EXPECT_EQ(swarm.parameters[1]->values(), swarm.parameters[0]->values());
    EXPECT_EQ(swarm.parameters[2]->values(), swarm.parameters[0]->values());
  }
}

TEST(FragmentsOfASwarm, EventsTellWhichFragmentARoundWasOf) {
  const std::string path = ::testing::TempDir() + "collab-fragments-" + std::to_string(getpid());
  std::remove(path.c_str());
  Swarm swarm = in_fragments(1);
  swarm.config.events_file = path;
  swarm.start_coordinator();
  expect_all_ok(swarm.run(train(8)));
  std::vector<std::string> fragments;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kField = "\"fragment\":";
    if (const auto at = line.find(kField); at != std::string::npos)
      fragments.push_back(line.substr(at + kField.size(), 1));
  }
  EXPECT_THAT(fragments, ::testing::ElementsAre("0", "1", "2", "0", "1", "2", "0"))
      << "four, and all after the last step";
  std::remove(path.c_str());
}

class FragmentsByHand : public ByHand {};

TEST_F(FragmentsByHand, AScriptThatWaitsGetsTheWholeModel) {
  start(2, [](Config& config) {
    config.fragments = kFragments;
    config.sync_every = {.steps = 1'000, .time = {}};
  });
  together(2, [this](std::size_t site) {
    for (int i = 0; i < 3; ++i) {
      train_one_step(values(site), site, steps_[site]++);
      EXPECT_TRUE(sessions_[site]->step(8).ok());
    }
    const Result<StepOutcome> outcome = sessions_[site]->synchronize();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_TRUE(outcome->round_ran);
    EXPECT_EQ(outcome->round, RoundId{kFragments});
    EXPECT_EQ(sessions_[site]->status().steps_since_round, 0U);
    EXPECT_TRUE(sessions_[site]->finish().ok());
    EXPECT_EQ(sessions_[site]->status().round, RoundId{kFragments}) << "all of them were averaged since the last step";
  });
  EXPECT_EQ(values(0), values(1));
}

// A barrier of the world looks at that number: it averages what is not common yet.
TEST_F(FragmentsByHand, AfterARoundOfOneFragmentTheOthersAreNotCommon) {
  start(2, [](Config& config) {
    config.fragments = 2;
    config.sync_every = {.steps = 8, .time = {}};
  });
  together(2, [this](std::size_t site) {
    EXPECT_TRUE(interval(site));
    EXPECT_GT(sessions_[site]->status().steps_since_round, 0U);
    EXPECT_TRUE(sessions_[site]->synchronize().ok());
    EXPECT_EQ(sessions_[site]->status().steps_since_round, 0U);
  });
  EXPECT_EQ(values(0), values(1));
}

TEST_F(FragmentsByHand, ASiteAskedToLeaveMakesOneMoreRound) {
  start(2, [](Config& config) {
    config.fragments = 4;
    config.sync_every = {.steps = 16, .time = {}};
  });
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  sessions_[0]->ask_to_leave();
  bool leaving = false;
  std::thread other([this] { EXPECT_TRUE(interval(1)); });
  for (int i = 0; i < 4 && !leaving; ++i) {
    train_one_step(values(0), 0, steps_[0]++);
    const Result<StepOutcome> outcome = sessions_[0]->step(8);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    leaving = outcome->leaving;
  }
  other.join();
  EXPECT_TRUE(leaving);
  EXPECT_TRUE(sessions_[0]->finish().ok());
  EXPECT_EQ(sessions_[0]->status().round, RoundId{2}) << "no turns after it";
  EXPECT_TRUE(sessions_[1]->finish().ok());
}

TEST_F(FragmentsByHand, NotANumberInOneFragmentEndsARunAfterThreeTimes) {
  start(2, [](Config& config) {
    config.fragments = 2;
    config.sync_every = {.steps = 8, .time = {}};
  });
  std::vector<Status> ended(2);
  for (int round = 0; round < 8 && ended[0].ok(); ++round) {
    together(2, [&](std::size_t site) {
      for (int i = 0; i < 4 && ended[site].ok(); ++i) {
        train_one_step(values(site), site, steps_[site]++);
        if (site == 0) values(0).back() = std::numeric_limits<float>::quiet_NaN();  // of the second fragment
        ended[site] = sessions_[site]->step(8).status();
      }
    });
  }
  EXPECT_THAT(ended[0].message(), HasSubstr("was left out 3 times in a row"));
  EXPECT_TRUE(ended[1].ok()) << ended[1].to_string();
}

TEST_F(FragmentsByHand, AStragglersStepsCountInEachFragmentOnce) {
  start(3, [](Config& config) {
    config.fragments = 2;
    config.sync_every = {.steps = 8, .time = {}};  // a round every four steps, as interval() has it
  });
  const Values first = values(0);
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)) << "of the first fragment, without the third"; });
  std::thread straggler([this] { EXPECT_TRUE(interval(2)) << "of the second"; });
  wait_until_one_is_ready();
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  straggler.join();
  finish_all();  // of the first once more
  EXPECT_EQ(values(0), values(1));
  EXPECT_EQ(values(0), values(2));
  const auto moves = [&](std::size_t site, std::size_t from) {
    Values by(first.size());
    for (std::size_t step = from; step < from + 4; ++step) train_one_step(by, site, step);
    return by;
  };
  const std::vector<Values> early{moves(0, 0), moves(1, 0)};
  const std::vector<Values> late{moves(0, 4), moves(1, 4)};
  const Values third = moves(2, 0);
  const std::uint64_t end_of_first = protocol::Fragments{2}.range(first.size(), 0).end;
  std::vector<double> expected(first.begin(), first.end());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double a = double{early[0][i]} + double{early[1][i]};
    const double b = double{late[0][i]} + double{late[1][i]};
    const double c = third[i];
    expected[i] += i < end_of_first ? a / 2 + (b + c) / 3 : (2 * (a + b) + c) / 5;
  }
  expect_near(values(0), expected);
}

TEST_F(FragmentsByHand, AModelThatIsTooSmallIsAveragedWhole) {
  swarm_.elements = 2'000;
  start(2, [](Config& config) { config.fragments = 64; });
  together(2, [this](std::size_t site) { static_cast<void>(interval(site)); });
  EXPECT_EQ(values(0), values(1));
}

TEST(FragmentsOfASwarm, SitesThatDifferAreRefusedWithBothValues) {
  Swarm swarm = in_fragments(2);
  swarm.adjust = [](SessionOptions& options, std::size_t site) { options.config.fragments = site == 0 ? 2 : 4; };
  swarm.config.join_timeout = std::chrono::seconds(3);
  swarm.start_coordinator();
  const std::vector<Status> results = swarm.run(train(1));
  std::string said;
  for (const Status& status : results) said += status.to_string();
  EXPECT_THAT(said, HasSubstr("fragments: this site has "));
  EXPECT_THAT(said, HasSubstr("[join.setting-mismatch]"));
}

}  // namespace
}  // namespace collab::testing
