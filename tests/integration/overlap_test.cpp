// Rounds behind the training (COLLAB_OVERLAP): whole sessions that train on while a round is in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <set>

#include "tests/integration/by_hand.h"
#include "tests/integration/meddling.h"
#include "tests/integration/overlap_events.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Values = std::vector<float>;

// So many that a round in flight is seldom met by the next one that is due: most of them learn nothing.
constexpr std::size_t kEvery = 5'000;

class Overlap : public ByHand {
 protected:
  void start_overlapping(
      std::size_t sites, Merge merge = {MergeRule::kRebase, 0.5},
      const std::function<void(Config&)>& change = [](Config&) {}) {
    start(sites, [&](Config& config) {
      config.overlap = true;
      config.merge = merge;
      config.sync_every = {.steps = kEvery, .time = {}};
      config.straggler_grace = std::chrono::seconds(2);  // who comes to a round under load is not late
      change(config);
    });
    since_.resize(sites);
  }
  // One step, of which this many samples come.
  StepOutcome step(std::size_t site, std::size_t samples) {
    ++since_[site];
    const Result<StepOutcome> outcome = sessions_[site]->step(samples);
    EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
    return outcome.ok() ? *outcome : StepOutcome{};
  }
  // Whether a round ended meanwhile.
  bool train_on(std::size_t site, std::size_t steps) {
    bool ran = false;
    for (std::size_t i = 0; i < steps; ++i) {
      train_one_step(values(site), site, steps_[site]++);
      ran = step(site, 8).round_ran || ran;
    }
    return ran;
  }
  // Steps that learn nothing, to the trigger.
  void to_trigger(std::size_t site) {
    bool ran = false;
    while (since_[site] < kEvery) ran = step(site, 0).round_ran || ran;
    since_[site] = 0;
    EXPECT_FALSE(ran) << "it begins, and nobody waits for it";
  }
  void learn_to_trigger(std::size_t site) {
    train_on(site, 4);
    to_trigger(site);
  }
  // Likewise, until the round in flight is merged.
  StepOutcome until_merged(std::size_t site) {
    while (since_[site] + 1 < kEvery) {
      const StepOutcome outcome = step(site, 0);
      if (outcome.round_ran || HasFailure()) return outcome;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "site " << site << ": no round was merged";
    return {};
  }
  // Two sites trigger, and have trained two steps more, or as many as said, when the round is merged.
  struct Common {
    std::vector<Values> snapshots = std::vector<Values>(2);
    std::vector<Values> moved_on = std::vector<Values>(2);
  };
  // Both have been moved by `step` of the mean delta, and by half of what each had beside the mean.
  void expect_moved_by(const Common& common, const Values& anchor, const std::function<double(double)>& step) {
    for (std::size_t i = 0; i < swarm_.elements; ++i) {
      const double old = static_cast<double>(anchor[i]);
      const double mean =
          0.5 * (static_cast<double>(common.snapshots[0][i]) + static_cast<double>(common.snapshots[1][i]));
      const double next = old - step(old - mean);
      for (std::size_t site = 0; site < 2; ++site) {
        const double expected = static_cast<double>(common.moved_on[site][i]) + (next - mean) +
                                0.5 * (mean - static_cast<double>(common.snapshots[site][i]));
        ASSERT_NEAR(values(site)[i], expected, 2e-6) << "element " << i << " of site " << site;
      }
    }
  }
  // A second site that trains on after its trigger may do so after the merge.
  Common common_round(std::size_t more_of_second = 2) {
    const Values first = values(0);
    Common common;
    for (std::size_t site = 0; site < 2; ++site) {
      common.snapshots[site] = first;
      for (std::size_t step = 0; step < 4; ++step) train_one_step(common.snapshots[site], site, step);
      common.moved_on[site] = common.snapshots[site];
      const std::size_t more = site == 0 ? 2 : more_of_second;
      for (std::size_t step = 4; step < 4 + more; ++step) train_one_step(common.moved_on[site], site, step);
    }
    learn_to_trigger(0);
    EXPECT_FALSE(train_on(0, 2)) << "the other site is not there yet";
    EXPECT_EQ(values(0), common.moved_on[0]);
    learn_to_trigger(1);
    if (!train_on(1, more_of_second)) until_merged(1);
    until_merged(0);
    return common;
  }
  void expect_all_equal() {
    for (const auto& parameters : swarm_.parameters) EXPECT_EQ(parameters->values(), swarm_.parameters[0]->values());
  }

  std::vector<std::size_t> since_;  // steps since the trigger, or the begin
};

TEST_F(Overlap, TheResultIsMergedIntoWhatWasTrainedMeanwhile) {
  start_overlapping(2);
  const Common common = common_round();
  std::vector<std::vector<double>> expected(2, std::vector<double>(swarm_.elements));
  std::vector<double> last(swarm_.elements);
  for (std::size_t i = 0; i < swarm_.elements; ++i) {
    const double mean =
        0.5 * (static_cast<double>(common.snapshots[0][i]) + static_cast<double>(common.snapshots[1][i]));
    for (std::size_t site = 0; site < 2; ++site) {
      expected[site][i] =
          static_cast<double>(common.moved_on[site][i]) + 0.5 * (mean - static_cast<double>(common.snapshots[site][i]));
      last[i] += 0.5 * static_cast<double>(common.moved_on[site][i]);
    }
  }
  expect_near(values(0), expected[0]);
  expect_near(values(1), expected[1]);
  EXPECT_NE(values(0), values(1)) << "each keeps half of what it differed by";
  finish_all();
  expect_all_equal();
  expect_near(values(0), last);  // all that was trained, each step once
}

TEST_F(Overlap, AFactorOfOneMovesBothSitesOntoTheAnchorPlusTheirProgress) {
  start_overlapping(2, {MergeRule::kRebase, 1});
  const Common common = common_round();
  for (std::size_t site = 0; site < 2; ++site) {
    std::vector<double> expected(swarm_.elements);
    for (std::size_t i = 0; i < swarm_.elements; ++i) {
      expected[i] = 0.5 * (static_cast<double>(common.snapshots[0][i]) + static_cast<double>(common.snapshots[1][i])) +
                    static_cast<double>(common.moved_on[site][i]) - static_cast<double>(common.snapshots[site][i]);
    }
    expect_near(values(site), expected);
  }
  finish_all();
  expect_all_equal();
}

TEST_F(Overlap, AMixDropsAPartOfTheProgress) {
  start_overlapping(2, {MergeRule::kMix, 0.25});
  const Common common = common_round();
  std::vector<double> expected(swarm_.elements);
  for (std::size_t i = 0; i < swarm_.elements; ++i) {
    const double anchor =
        0.5 * (static_cast<double>(common.snapshots[0][i]) + static_cast<double>(common.snapshots[1][i]));
    expected[i] = 0.25 * static_cast<double>(common.moved_on[0][i]) + 0.75 * anchor;
  }
  expect_near(values(0), expected);
  finish_all();
  expect_all_equal();
}

TEST_F(Overlap, AnOuterStepMovesBothSitesAlike) {
  start_overlapping(2, {MergeRule::kRebase, 0.5}, [](Config& config) {
    config.outer_optimizer = OuterId::kNesterov;
    config.outer_lr = 0.7;
  });
  const Values anchor = values(0);
  const Common common = common_round();
  // The first step of the momentum.
  expect_moved_by(common, anchor, [](double mean_delta) { return 0.7 * (1 + 0.9) * mean_delta; });
  finish_all();
  expect_all_equal();
}

TEST_F(Overlap, AStepOfRdaMovesBothSitesAlike) {
  start_overlapping(2, {MergeRule::kRebase, 0.5}, [](Config& config) { config.outer_optimizer = OuterId::kRda; });
  const Values anchor = values(0);
  const Common common = common_round();
  const auto delta = [&](std::size_t site, std::size_t i) {
    return static_cast<double>(anchor[i]) - static_cast<double>(common.snapshots[site][i]);
  };
  double norms[2] = {0, 0};
  double of_mean = 0;
  for (std::size_t i = 0; i < swarm_.elements; ++i) {
    for (std::size_t site = 0; site < 2; ++site) norms[site] += delta(site, i) * delta(site, i);
    of_mean += std::pow(0.5 * (delta(0, i) + delta(1, i)), 2);
  }
  const double factor = 0.5 * (std::sqrt(norms[0]) + std::sqrt(norms[1])) / std::sqrt(of_mean);
  EXPECT_GT(factor, 1.02);
  EXPECT_LT(factor, std::sqrt(2));
  expect_moved_by(common, anchor, [&](double mean_delta) { return factor * mean_delta; });
  finish_all();
  expect_all_equal();
}

TEST_F(Overlap, BuffersAreTheMeanAndNeverMoved) {
  const std::size_t trained = 7'000;  // not at the edge of a chunk
  swarm_.adjust = [&](SessionOptions& options, std::size_t) { options.compared_elements = trained; };
  start_overlapping(2);
  const Common common = common_round(0);  // training moves this test's buffers, too
  EXPECT_TRUE(std::equal(values(0).begin() + trained, values(0).end(), values(1).begin() + trained));
  EXPECT_NE(values(0)[0], values(1)[0]);
  for (std::size_t i = trained; i < swarm_.elements; ++i) {
    ASSERT_NEAR(values(0)[i], 0.5F * (common.snapshots[0][i] + common.snapshots[1][i]), 1e-6F);
  }
  finish_all();
  expect_all_equal();
}

TEST_F(Overlap, ASoleSiteKeepsWhatItTrains) {
  start_overlapping(1);
  Values expected = values(0);
  for (std::size_t step = 0; step < 7; ++step) train_one_step(expected, 0, step);
  learn_to_trigger(0);
  if (!train_on(0, 3)) until_merged(0);
  EXPECT_EQ(values(0), expected) << "bit for bit";
  EXPECT_EQ(sessions_[0]->status().round, RoundId(1));
  finish_all();
  EXPECT_EQ(values(0), expected);
}

TEST_F(Overlap, ARoundThatIsAskedForWaitsForTheOneInFlight) {
  start_overlapping(2);
  for (const std::size_t site : {0U, 1U}) learn_to_trigger(site);
  for (const std::size_t site : {0U, 1U}) train_on(site, 2);
  together(2, [this](std::size_t site) {
    const Result<StepOutcome> outcome = sessions_[site]->synchronize();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_TRUE(outcome->round_ran);
    EXPECT_EQ(outcome->round, RoundId(2));
  });
  expect_all_equal();
  finish_all();
}

// One site is in the midst of the round that the other would begin with its next step: both are to make as many.
TEST_F(Overlap, ARoundThatIsAskedForComesAfterTheOneThatIsDue) {
  start_overlapping(2, {MergeRule::kRebase, 0.5},
                    [](Config& config) { config.straggler_grace = std::chrono::seconds(20); });
  learn_to_trigger(1);
  for (std::size_t i = 0; i < kEvery; ++i) EXPECT_FALSE(step(1, 0).round_ran);
  learn_to_trigger(0);
  until_merged(0);
  learn_to_trigger(0);  // with round 2 in flight
  since_[1] = 0;
  until_merged(1);
  EXPECT_EQ(sessions_[1]->status().round, RoundId(1));
  together(2, [this](std::size_t site) {
    const Result<StepOutcome> outcome = sessions_[site]->synchronize();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_TRUE(outcome->round_ran);
    EXPECT_EQ(outcome->round, RoundId(3));
  });
  expect_all_equal();
  finish_all();
}

// A barrier of the world: one site has a round on its way that the other, which is slower, has not begun.
TEST_F(Overlap, SitesOfUnequalSpeedReachTheSameRoundAtABarrier) {
  start_overlapping(2, {MergeRule::kRebase, 0.5},
                    [](Config& config) { config.straggler_grace = std::chrono::seconds(20); });
  learn_to_trigger(0);
  train_on(0, 2);
  train_on(1, 3);
  const RoundId last = std::max(sessions_[0]->settles_at(), sessions_[1]->settles_at());
  EXPECT_EQ(sessions_[1]->settles_at(), RoundId(1));
  EXPECT_EQ(last, RoundId(2)) << "the one in flight and one more";
  together(2, [&](std::size_t site) {
    const Result<StepOutcome> outcome = sessions_[site]->synchronize_until(last);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(outcome->round, last);
    EXPECT_EQ(sessions_[site]->settles_at(), RoundId(0));
  });
  expect_all_equal();
  finish_all();
}

TEST_F(Overlap, AJoinerInMidFlightIsServedAndAgrees) {
  start_overlapping(2);
  learn_to_trigger(0);  // in flight: the other has not come
  swarm_.sites = 3;
  swarm_.parameters.push_back(std::make_shared<PlainVector>(fresh_values(swarm_.elements, 9)));
  sessions_.resize(3);
  steps_.resize(3);
  since_.resize(3);
  begin(2);
  EXPECT_FALSE(train_on(0, 2));
  for (const std::size_t site : {1U, 2U}) learn_to_trigger(site);
  for (const std::size_t site : {0U, 1U, 2U}) until_merged(site);
  finish_all();
  expect_all_equal();
}

TEST_F(Overlap, ASiteKilledInMidFlightDoesNotDelayTheOthersForLong) {
  start_overlapping(3, {MergeRule::kRebase, 0.5}, [](Config& config) {
    config.link_grace = std::chrono::seconds(3);  // the node's thread gives way to scripts that never wait
    config.heartbeat = std::chrono::milliseconds(50);
  });
  learn_to_trigger(2);
  sessions_[2].reset();
  for (const std::size_t site : {0U, 1U}) learn_to_trigger(site);
  for (const std::size_t site : {0U, 1U}) until_merged(site);
  values(2) = fresh_values(swarm_.elements, 99);
  begin(2);  // its user starts it again
  for (const std::size_t site : {0U, 1U, 2U}) train_on(site, 3);
  finish_all();
  expect_all_equal();
}

TEST_F(Overlap, ALateSiteIsMovedOntoTheNewAnchorAndItsStepsCount) {
  const std::size_t trained = 7'000;  // what lies behind is buffers
  swarm_.adjust = [&](SessionOptions& options, std::size_t) { options.compared_elements = trained; };
  start_overlapping(3);
  const Values first = values(2);
  for (const std::size_t site : {0U, 1U}) learn_to_trigger(site);
  for (const std::size_t site : {0U, 1U}) until_merged(site);  // without the third
  EXPECT_EQ(sessions_[2]->status().round, RoundId(0));
  Values late = first;
  for (std::size_t step = 0; step < 4; ++step) train_one_step(late, 2, step);
  std::vector<double> expected(late.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // What the first two keep of their differences adds up to nothing, and they have trained no further.
    expected[i] = 0.5 * (static_cast<double>(values(0)[i]) + static_cast<double>(values(1)[i]));
    if (i < trained) expected[i] += static_cast<double>(late[i]) - static_cast<double>(first[i]);
  }
  learn_to_trigger(2);  // with the anchor of before; the others follow once it waits
  wait_until_one_is_ready();
  finish_all();
  expect_all_equal();
  expect_near(values(0), expected);
}

TEST_F(Overlap, NotANumberIsLeftOutAndItsSiteTakesTheAnchorAtTheMerge) {
  start_overlapping(2);
  train_on(1, 3);
  values(1)[123] = std::numeric_limits<float>::quiet_NaN();
  to_trigger(1);
  EXPECT_FALSE(train_on(1, 5)) << "the other site is not there yet";
  EXPECT_TRUE(std::isnan(values(1)[123])) << "nothing has touched it";
  learn_to_trigger(0);
  EXPECT_TRUE(until_merged(1).took_anchor);
  EXPECT_FALSE(until_merged(0).took_anchor);
  for (const float value : values(1)) ASSERT_TRUE(std::isfinite(value));
  for (const std::size_t site : {0U, 1U}) train_on(site, 2);
  std::vector<double> expected(swarm_.elements);
  for (std::size_t i = 0; i < swarm_.elements; ++i) {
    expected[i] = 0.5 * (static_cast<double>(values(0)[i]) + static_cast<double>(values(1)[i]));
  }
  finish_all();
  expect_all_equal();
  expect_near(values(0), expected);  // the five steps that were dropped weigh nothing
}

TEST_F(Overlap, ThreeUnfitDeltasInARowReachTheScriptAtAStep) {
  start_overlapping(2);
  for (int round = 0; round < 3; ++round) {
    learn_to_trigger(0);
    train_on(1, 1);
    values(1)[5] = std::numeric_limits<float>::infinity();
    to_trigger(1);
    until_merged(0);
    if (round < 2) {
      EXPECT_TRUE(until_merged(1).took_anchor);
      continue;
    }
    Status ended;
    for (int i = 0; i < 4'000 && ended.ok(); ++i) {
      ended = sessions_[1]->step(0).status();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_THAT(ended.message(), HasSubstr("was left out 3 times in a row: infinity in parameter \"weights\""));
  }
}

TEST_F(Overlap, ASiteAskedToLeaveInMidFlightLeavesWithTheCommonModel) {
  start_overlapping(2);
  learn_to_trigger(1);
  sessions_[1]->ask_to_leave();
  std::thread leaves([this] {
    StepOutcome outcome;
    for (int i = 0; i < 4 && !outcome.leaving; ++i) {
      train_one_step(values(1), 1, steps_[1]++);
      outcome = step(1, 8);
    }
    EXPECT_TRUE(outcome.leaving) << "the merge, and a last round two steps after it";
    EXPECT_EQ(outcome.round, RoundId(2));
    EXPECT_TRUE(sessions_[1]->finish().ok());
  });
  learn_to_trigger(0);
  until_merged(0);
  learn_to_trigger(0);
  until_merged(0);
  leaves.join();
  EXPECT_TRUE(sessions_[0]->finish().ok());
  expect_all_equal();
}

TEST_F(Overlap, ARoundLongerThanThePeriodDelaysTheNextAndNamesTheSlowSite) {
  ::testing::internal::CaptureStderr();
  start_overlapping(2);
  learn_to_trigger(0);
  for (std::size_t i = 0; i < kEvery + 10; ++i) EXPECT_FALSE(step(0, 0).round_ran);
  EXPECT_EQ(sessions_[0]->status().steps_since_round, 2 * kEvery + 10);
  learn_to_trigger(1);
  until_merged(1);
  since_[0] = 0;
  until_merged(0);
  EXPECT_FALSE(step(0, 0).round_ran) << "the next one begins at once";
  finish_all();
  expect_all_equal();
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("the next one begins once that one is merged (round 1: waiting until " +
                              swarm_.options(1, 0).site + " is ready too"));
  EXPECT_THAT(told, Not(HasSubstr("rounds take longer"))) << "none has begun";
}

TEST_F(Overlap, AnExchangeLongerThanThePeriodIsReportedAsSlow) {
  std::mutex mutex;  // of what both sites' threads use
  Held held;
  bool holds = false;
  std::promise<void> exchanging;
  std::set<Meddling*> exchange;
  const auto plain = swarm_.transport;
  swarm_.transport = [&] {
    return std::make_unique<Meddling>(plain(),
                                      [&](Meddling& by, LinkId link, TransportMessage& message, std::uint64_t token) {
                                        const std::lock_guard lock(mutex);
                                        if (!holds) return true;
                                        if (exchange.insert(&by).second && exchange.size() == 2) exchanging.set_value();
                                        held.keep(by, link, std::move(message), token);
                                        return false;
                                      });
  };
  ::testing::internal::CaptureStderr();
  start_overlapping(2);
  {
    const std::lock_guard lock(mutex);
    holds = true;
  }
  learn_to_trigger(0);
  learn_to_trigger(1);
  exchanging.get_future().wait();
  for (std::size_t i = 0; i < kEvery + 10; ++i) EXPECT_FALSE(step(0, 0).round_ran);
  {
    const std::lock_guard lock(mutex);
    holds = false;
    held.release();
  }
  since_[0] = 0;
  until_merged(0);
  until_merged(1);
  finish_all();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("rounds take longer than COLLAB_SYNC_EVERY, 5000 steps; now round 1: exchanging with "));
  sessions_.clear();  // they use what ends here
}

TEST_F(Overlap, EventsTellHowLongTheScriptWaited) {
  const std::string path = ::testing::TempDir() + "collab-overlap-" + std::to_string(getpid());
  std::remove(path.c_str());
  start_overlapping(2, {MergeRule::kRebase, 0.5}, [&](Config& config) { config.events_file = path; });
  common_round();
  finish_all();
  const std::vector<Behind> behind = rounds_behind(path);
  for (const Behind& round : behind) EXPECT_LT(round.stall, round.overlap);
  EXPECT_GE(behind.size(), 2U);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace collab::testing
