// Rounds behind the training at sites of several ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/by_hand.h"
#include "tests/integration/overlap_events.h"

namespace collab::testing {
namespace {

using Values = std::vector<float>;

struct RanksOfASite {
  std::size_t ranks;
  bool one_host;
  bool by_time;
  CodecId codec;
  MergeRule rule;
  std::uint32_t fragments = 1;
};
class OverlapOfRanks : public ::testing::TestWithParam<RanksOfASite> {};

TEST_P(OverlapOfRanks, RanksHoldOneModelAtEveryStepAndSitesAgreeAtTheEnd) {
  Swarm swarm = swarm_of(2, GetParam().codec);
  swarm.ranks = GetParam().ranks;
  swarm.config.run = "overlap-" + std::to_string(getpid());
  swarm.config.overlap = true;
  swarm.config.merge = {GetParam().rule, 0.5};
  swarm.config.fragments = GetParam().fragments;
  if (GetParam().by_time) swarm.config.sync_every = {.steps = 0, .time = std::chrono::milliseconds(20)};
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.layout.one_host = GetParam().one_host; };
  swarm.start_coordinator();
  std::vector<std::unique_ptr<std::barrier<>>> gradients;  // are averaged over the site before any rank steps
  for (int site = 0; site < 2; ++site) {
    gradients.push_back(std::make_unique<std::barrier<>>(static_cast<std::ptrdiff_t>(swarm.ranks)));
  }
  const std::vector<Status> results =
      swarm.run([&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
        const Values& of_leader = swarm.parameters[site * swarm.ranks]->values();
        std::size_t step = 0;
        for (int rounds = 0; rounds < 5; ++step) {
          gradients[site]->arrive_and_wait();
          EXPECT_EQ(values, of_leader) << "step " << step;
          gradients[site]->arrive_and_wait();
          train_one_step(values, site, step);
          const Result<StepOutcome> outcome = session.step(8);
          if (!outcome.ok()) return outcome.status();
          rounds += outcome->round_ran ? 1 : 0;
        }
        gradients[site]->arrive_and_wait();
        return session.finish();
      });
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const auto& parameters : swarm.parameters) EXPECT_EQ(parameters->values(), swarm.parameters[0]->values());
}
INSTANTIATE_TEST_SUITE_P(Ranks, OverlapOfRanks,
                         ::testing::Values(RanksOfASite{1, true, false, CodecId::kFp32, MergeRule::kRebase},
                                           RanksOfASite{3, true, false, CodecId::kInt8, MergeRule::kRebase},
                                           RanksOfASite{3, true, true, CodecId::kFp32, MergeRule::kMix},
                                           RanksOfASite{2, false, false, CodecId::kFp32, MergeRule::kRebase},
                                           RanksOfASite{2, false, true, CodecId::kInt8, MergeRule::kRebase},
                                           RanksOfASite{2, true, false, CodecId::kFp32, MergeRule::kRebase, 3},
                                           RanksOfASite{2, true, true, CodecId::kInt8, MergeRule::kMix, 3},
                                           RanksOfASite{2, false, false, CodecId::kFp32, MergeRule::kRebase, 3}));

TEST(OverlapSessions, TheWaitForTheSitesOtherRanksIsPartOfTheStall) {
  const std::string path = ::testing::TempDir() + "collab-overlap-ranks-" + std::to_string(getpid());
  std::remove(path.c_str());
  Swarm swarm = swarm_of(1, CodecId::kFp32);
  swarm.config.run = "stall-" + std::to_string(getpid());
  swarm.ranks = 2;
  swarm.config.overlap = true;
  swarm.config.events_file = path;
  swarm.start_coordinator();
  const auto train = [&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    const bool leads = &values == &swarm.parameters[0]->values();
    for (std::size_t step = 0; step < 8; ++step) {
      train_one_step(values, site, step);
      if (!leads) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
    }
    return session.finish();
  };
  for (const Status& status : swarm.run(train)) EXPECT_TRUE(status.ok()) << status.to_string();
  const std::vector<Behind> behind = rounds_behind(path);
  ASSERT_FALSE(behind.empty());
  for (const Behind& round : behind) EXPECT_GE(round.stall, 0.025);
  std::remove(path.c_str());
}

// Parameters that are told of memory that they are copied to and from.
class LockedTo final : public ParameterVector {
 public:
  explicit LockedTo(std::vector<float> values) : values_(std::move(values)) {}
  [[nodiscard]] std::uint64_t size() const override { return values_.size(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override {
    return values_.view(offset, count);
  }
  Status read(std::uint64_t offset, std::span<float> out) override {
    note(out);
    return values_.read(offset, out);
  }
  Status write(std::uint64_t offset, std::span<const float> in) override { return values_.write(offset, in); }
  Status add(std::uint64_t offset, std::span<const float> values) override {
    note(values);
    return values_.add(offset, values);
  }
  [[nodiscard]] std::shared_ptr<void> pin_memory(std::span<const float> memory) override {
    memory_ = memory;
    auto locked = std::make_shared<int>();
    pinned_ = locked;
    return locked;
  }
  std::vector<float>& values() { return values_.values(); }
  [[nodiscard]] bool is_pinned() const { return !pinned_.expired(); }
  int locked_moves = 0;  // of all elements, to and from what is locked
  int other_moves = 0;   // likewise, of other memory

 private:
  void note(std::span<const float> memory) {
    if (memory.size() != size()) return;
    ++(is_pinned() && memory.data() == memory_.data() ? locked_moves : other_moves);
  }
  HostVector values_;
  std::span<const float> memory_;
  std::weak_ptr<int> pinned_;
};

TEST(OverlapSessions, TheParametersOfEachRankLockTheCopy) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.config.run = "locked-" + std::to_string(getpid());
  swarm.ranks = 2;
  swarm.config.overlap = true;
  swarm.start_coordinator();
  std::array<ThreadsSiteGroup, 2> groups{ThreadsSiteGroup(2), ThreadsSiteGroup(2)};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, site = i / 2, rank = i % 2] {
      const auto values = std::make_shared<LockedTo>(fresh_values(swarm.elements, 1 + site));
      {
        auto session = make_session(swarm.options(site, rank), values, groups[site].of_rank(rank));
        ASSERT_TRUE(session.ok());
        ASSERT_TRUE((*session)->begin().ok());
        EXPECT_TRUE(values->is_pinned());
        for (std::size_t step = 0; step < 12; ++step) {
          train_one_step(values->values(), site, step);
          ASSERT_TRUE((*session)->step(8).ok());
        }
        EXPECT_TRUE((*session)->finish().ok());
      }
      EXPECT_FALSE(values->is_pinned()) << "the arena has gone";
      EXPECT_GT(values->locked_moves, 0);
      EXPECT_EQ(values->other_moves, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OverlapSessions, GenerationsFollowEachOther) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.config.overlap = true;
  swarm.start_coordinator();
  std::vector<std::vector<Values>> ends(2);
  std::vector<std::thread> threads;
  for (std::size_t site = 0; site < 2; ++site) {
    threads.emplace_back([&, site] {
      for (std::uint32_t generation = 1; generation <= 2; ++generation) {
        const auto values = std::make_shared<PlainVector>(fresh_values(swarm.elements, 10 * generation + site));
        SessionOptions options = swarm.options(site, 0);
        options.generation = generation;
        auto session = make_session(std::move(options), values, nullptr);
        ASSERT_TRUE(session.ok());
        ASSERT_TRUE((*session)->begin().ok());
        for (std::size_t step = 0; step < 6; ++step) {
          train_one_step(values->values(), site, step);
          ASSERT_TRUE((*session)->step(8).ok());
        }
        EXPECT_TRUE((*session)->finish(generation == 2 ? 0 : 2).ok());
        ends[site].push_back(values->values());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ends[0], ends[1]);
}

}  // namespace
}  // namespace collab::testing
