// A site whose delta holds NaN or infinity: what it is told, when it ends, and which buffers are no part of the vector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "tests/integration/by_hand.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;

void expect_all_agree(const Swarm& swarm, const std::vector<Status>& results) {
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), swarm.parameters[0]->values());
}

constexpr std::size_t kBuffersFrom = 7'000;

// Two sites of two ranks, the model a weight and a buffer behind it.
Swarm swarm_with_a_buffer(const std::string& name) {
  Swarm swarm = swarm_of(2, CodecId::kFp16);
  swarm.ranks = 2;
  swarm.config.run = name + "-" + std::to_string(getpid());
  swarm.adjust = [](SessionOptions& options, std::size_t) {
    options.compared_elements = kBuffersFrom;
    options.model = {{"weights", "float32", {kBuffersFrom}, TensorKind::kAveraged, {}},
                     {"mask", "float32", {50, 2}, TensorKind::kLeftOut, {}},
                     {"norm.mean", "float32", {3'000}, TensorKind::kAveraged, {}}};
  };
  return swarm;
}

// At the second site the buffer is infinite in the rounds (from 1) that are named.
std::function<Status(Session&, std::size_t, std::vector<float>&)> infinite_in(std::vector<std::size_t> rounds,
                                                                              std::size_t steps) {
  return [rounds = std::move(rounds), steps](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    for (std::size_t step = 0; step < steps; ++step) {
      train_one_step(values, site, step);
      const bool now = std::ranges::find(rounds, step / 4 + 1) != rounds.end();
      if (site == 1 && now) values[9'000] = -std::numeric_limits<float>::infinity();
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      EXPECT_EQ(outcome->took_anchor, site == 1 && now && step % 4 == 3) << step;
    }
    return session.finish();
  };
}

TEST(Unfit, ThreeUnfitDeltasInARowEndASiteAndTheErrorNamesTheTensor) {
  Swarm swarm = swarm_with_a_buffer("unfit");
  swarm.start_coordinator();
  const std::vector<Status> results = swarm.run(infinite_in({2, 3, 4, 5}, 20));
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(results[rank].ok()) << results[rank].to_string();
  for (std::size_t rank = 2; rank < 4; ++rank) {
    EXPECT_THAT(results[rank].message(), HasSubstr("the update of site site1 was left out 3 times in a row: -infinity "
                                                   "in buffer \"norm.mean\" (element 2000 of float32 [3000])"));
    EXPECT_THAT(results[rank].message(), HasSubstr("COLLAB_BUFFERS=0"));
    EXPECT_THAT(results[rank].message(), HasSubstr("COLLAB_ON_NONFINITE=continue"));
    EXPECT_EQ(results[rank].message(), results[2].message());
    EXPECT_EQ(results[rank].code(), results[2].code());
  }
}

TEST(Unfit, UnfitDeltasDoNotEndASiteThatIsToContinue) {
  Swarm swarm = swarm_with_a_buffer("unfit-goes-on");
  swarm.config.on_nonfinite = OnNonfinite::kContinue;
  swarm.start_coordinator();
  expect_all_agree(swarm, swarm.run(infinite_in({2, 3, 4, 5, 6}, 28)));
}

TEST(Unfit, ARoundThatGoesWellForgivesUnfitDeltas) {
  Swarm swarm = swarm_with_a_buffer("unfit-twice");
  swarm.start_coordinator();
  expect_all_agree(swarm, swarm.run(infinite_in({1, 2, 4, 5, 7}, 32)));
}

TEST(Unfit, SitesThatLeaveOutOtherBuffersAreRefusedWithBothLists) {
  Swarm swarm = swarm_with_a_buffer("lists");
  swarm.ranks = 1;
  swarm.config.join_timeout = std::chrono::seconds(3);
  swarm.adjust = [before = swarm.adjust](SessionOptions& options, std::size_t site) {
    before(options, site);
    if (site == 1) options.model[1].kind = TensorKind::kAveraged;
  };
  swarm.start_coordinator();
  const std::vector<Status> results = swarm.run(train(1));
  const std::string said = results[0].message() + results[1].message();
  EXPECT_THAT(said, ::testing::AnyOf(HasSubstr("buffers left out of the average: here none; at site0 mask."),
                                     HasSubstr("buffers left out of the average: here mask; at site1 none.")));
}

}  // namespace
}  // namespace collab::testing
