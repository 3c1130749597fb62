// Sites that leave a swarm which goes on.
#include <gtest/gtest.h>

#include "tests/integration/by_hand.h"

namespace collab::testing {
namespace {

TEST(Leaving, ASiteThatLeavesEarlyDoesNotStopTheOthers) {
  Swarm swarm = swarm_of(3, CodecId::kFp32);
  swarm.start_coordinator();
  expect_all_ok(swarm.run([](Session& session, std::size_t site, std::vector<float>& values) {
    return train(site == 0 ? 5 : 12)(session, site, values);
  }));
  EXPECT_EQ(swarm.parameters[1]->values(), swarm.parameters[2]->values());
}

class AskedToLeave : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(OneHost, AskedToLeave, ::testing::Bool());

// On several hosts the other ranks hear of it in the next round that is due.
TEST_P(AskedToLeave, TheRanksOfASiteMakeOneLastRoundTogether) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.ranks = 2;
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = GetParam(); };
  swarm.start_coordinator();
  expect_all_ok(swarm.run([](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    if (site == 1) session.ask_to_leave();
    for (std::size_t step = 0; step < 4; ++step) {
      train_one_step(values, site, step);
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      EXPECT_FALSE(outcome->leaving && site == 0) << "nobody has asked it";
      if (!outcome->leaving) continue;
      EXPECT_EQ(session.status().steps, GetParam() ? 3U : 4U);
      EXPECT_EQ(session.status().steps_since_round, 0U);
      return session.finish();
    }
    EXPECT_EQ(site, 0U) << "the others go on";
    return session.finish();
  }));
}

}  // namespace
}  // namespace collab::testing
