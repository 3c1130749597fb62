// Models that are trained one after the other: a session each, one coordinator for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "core/runtime/storage/state_file.h"
#include "tests/integration/by_hand.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;

// A site's session of one generation, on the thread of its caller.
std::unique_ptr<Session> session_of(Swarm& swarm, std::size_t site, std::uint32_t generation,
                                    const std::shared_ptr<PlainVector>& values) {
  SessionOptions options = swarm.options(site, 0);
  options.generation = generation;
  auto made = make_session(std::move(options), values, nullptr);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? std::move(*made) : nullptr;
}

Status train_generation(Session& session, std::size_t site, std::vector<float>& values, std::size_t steps,
                        std::uint32_t next) {
  COLLAB_RETURN_IF_ERROR(session.begin());
  for (std::size_t step = 0; step < steps; ++step) {
    train_one_step(values, site, step);
    const Result<StepOutcome> outcome = session.step(8);
    if (!outcome.ok()) return outcome.status();
  }
  return session.finish(next);
}

TEST(Generations, EachGenerationHasItsOwnAnchorAndEndsAlikeAtAllSites) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.config.sync_every = {4, {}};
  swarm.config.state_dir = std::filesystem::temp_directory_path() / "collab-generations";
  std::filesystem::remove_all(swarm.config.state_dir);
  swarm.start_coordinator();
  std::vector<std::vector<float>> ends[2];
  std::vector<std::thread> threads;
  for (std::size_t site = 0; site < 2; ++site) {
    threads.emplace_back([&, site] {
      for (std::uint32_t generation = 1; generation <= 3; ++generation) {
        const auto values = std::make_shared<PlainVector>(fresh_values(swarm.elements, 10 * generation + site));
        const auto session = session_of(swarm, site, generation, values);
        const std::size_t steps = 6 + 3 * site;  // one is ahead of the other
        const Status status =
            train_generation(*session, site, values->values(), steps, generation == 3 ? 0 : generation + 1);
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(session->status().generation, generation);
        ends[site].push_back(values->values());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(ends[0].size(), 3U);
  EXPECT_NE(ends[1][0], ends[1][1]);
  // Each generation has a file of its own, that the others do not mistake for theirs.
  for (std::uint32_t generation = 1; generation <= 3; ++generation) {
    const auto header = read_state_header(state_path(swarm.config.state_dir, "site0", generation));
    ASSERT_TRUE(header.ok() && header->has_value()) << generation;
  }
}

TEST(Generations, ASiteThatIsBehindTrainsAlone) {
  Swarm swarm = swarm_of(1, CodecId::kFp32);  // the coordinator waits for one
  swarm.config.sync_every = {2, {}};
  swarm.config.heartbeat = std::chrono::milliseconds(100);
  swarm.config.link_grace = std::chrono::milliseconds(500);  // for sites of an earlier generation, which may return
  swarm.start_coordinator();
  const auto ahead = std::make_shared<PlainVector>(fresh_values(swarm.elements, 1));
  std::atomic<bool> begun = false;
  std::atomic<bool> over = false;
  std::thread other([&] {
    const auto session = session_of(swarm, 0, 2, ahead);
    EXPECT_TRUE(session->begin().ok());
    begun = true;
    while (!over) std::this_thread::yield();
    EXPECT_TRUE(session->finish().ok());
  });
  while (!begun) std::this_thread::yield();
  const std::vector<float> fresh = fresh_values(swarm.elements, 2);
  const auto behind = std::make_shared<PlainVector>(fresh);
  const auto session = session_of(swarm, 1, 1, behind);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(session->begin().ok());
  EXPECT_EQ(behind->values(), fresh) << "no anchor was put in place";
  for (std::size_t step = 0; step < 4; ++step) {
    train_one_step(behind->values(), 1, step);
    const Result<StepOutcome> outcome = session->step(8);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_FALSE(outcome->round_ran);
  }
  EXPECT_TRUE(session->finish(2).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("a round is due, but the swarm trains generation 2 of the model"));
  over = true;
  other.join();
}

TEST(Generations, ADeltaOfExactlyZeroIsReportedOnce) {
  Swarm swarm = swarm_of(1, CodecId::kFp32);
  swarm.config.sync_every = {2, {}};
  swarm.start_coordinator();
  ::testing::internal::CaptureStderr();
  const auto results = swarm.run([](Session& session, std::size_t, std::vector<float>& values) -> Status {
    for (std::size_t step = 0; step < 4; ++step) {
      if (step < 2) train_one_step(values, 0, step);
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
    }
    return session.finish();
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(results[0].ok()) << results[0].to_string();
  EXPECT_THAT(said, HasSubstr("has made 2 steps since the last round, and its parameters are bit for bit"));
  EXPECT_EQ(said.find("bit for bit"), said.rfind("bit for bit")) << "the first round was none of these";
}

}  // namespace
}  // namespace collab::testing
