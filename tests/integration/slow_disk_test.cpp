// A disk that stands still holds up what is to be on it, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/runtime/storage/state_file.h"
#include "tests/integration/by_hand.h"
#include "tests/unit/runtime/disks.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SlowDisk : public ByHand {
 protected:
  SlowDisk() {
    dir_ = ::testing::TempDir() + "collab-slow-disk-" + std::to_string(::getpid()) + "-" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    swarm_.elements = 300'000;  // more than a save copies at once
    swarm_.adjust = [this](SessionOptions& options, std::size_t site) {
      if (site == 1) options.disk = of_site_1_;
    };
  }
  ~SlowDisk() override {
    for (GatedDisk* disk : {&disk_, &appending_}) disk->open_gate();
    sessions_.clear();
    std::filesystem::remove_all(dir_);
  }

  void start_two(std::uint32_t save_every = 1) {
    start(2, [this, save_every](Config& config) {
      config.save_every = save_every;
      config.outer_optimizer = OuterId::kNesterov;
      config.chunk_kib = 256;
      config.state_dir = dir_;
      config.events_file = dir_ + "/events";
      config.heartbeat = std::chrono::milliseconds(100);
      config.link_grace = std::chrono::seconds(5);
    });
  }
  void rounds(int count) {
    for (int round = 0; round < count; ++round) {
      together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
    }
  }
  std::string events() const {
    std::ifstream file(dir_ + "/events");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string dir_;
  GatedDisk disk_{GatedDisk::Of::kWrite}, appending_{GatedDisk::Of::kAppend};
  GatedDisk* of_site_1_ = &disk_;
};

TEST_F(SlowDisk, RoundsGoOnAndTheLastStateIsSavedInTheEnd) {
  disk_.shut();
  start_two();
  rounds(1);
  disk_.wait_until_reached(1);  // the save of the first round, in its first write
  rounds(3);
  EXPECT_EQ(disk_.reached(), 1);
  EXPECT_EQ(values(0), values(1));
  EXPECT_THAT(events(), Not(HasSubstr("\"leave\"")));
  const Digest state = sessions_[1]->status().state;
  disk_.open_gate();
  finish_all();
  const auto header = read_state_header(state_path(dir_, "site1"));
  ASSERT_TRUE(header.ok() && header->has_value()) << header.status().to_string();
  EXPECT_EQ((*header)->round, RoundId(4));
  EXPECT_EQ((*header)->digest, state);
  std::vector<float> anchor(swarm_.elements);
  std::vector<float> outer(swarm_.elements);
  EXPECT_TRUE(read_state_into(state_path(dir_, "site1"), **header, anchor, outer).ok());
}

TEST_F(SlowDisk, TheStateIsSavedEverySoManyRounds) {
  disk_.shut();
  start_two(3);
  rounds(2);
  EXPECT_EQ(disk_.reached(), 0);
  rounds(1);
  disk_.wait_until_reached(1);
  disk_.open_gate();
  finish_all();
}

TEST_F(SlowDisk, EventsThatAreNotTakenHoldUpNoRound) {
  of_site_1_ = &appending_;
  appending_.shut();
  start_two();
  rounds(3);
  EXPECT_EQ(appending_.reached(), 1);
  EXPECT_EQ(values(0), values(1));
  EXPECT_THAT(events(), Not(HasSubstr("\"leave\"")));
  EXPECT_THAT(events(), Not(HasSubstr("\"site\":\"site1\"")));
  appending_.open_gate();
  finish_all();
  sessions_.clear();
  const std::string told = events();
  for (const char* round : {"1", "2", "3"}) {
    EXPECT_THAT(told, HasSubstr(R"("site":"site1","event":"round","round":)" + std::string(round)));
  }
}

}  // namespace
}  // namespace collab::testing
