// A save is whole, or is given up with an error. A round that needs its memory never waits for the disk.
#include "core/runtime/storage/state_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "core/base/digest.h"
#include "tests/unit/runtime/disks.h"
#include "tests/unit/runtime/in_own_folder.h"

namespace collab::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kPiece = 256 * 1024;
constexpr std::size_t kElements = 2 * kPiece + 1000;  // three pieces

bool all_are(const std::vector<float>& values, float value) {
  return values.size() == kElements && std::ranges::count(values, value) == static_cast<std::ptrdiff_t>(kElements);
}

class StateSaverTest : public testing::InOwnFolder {
 protected:
  StateSaverTest() : anchor_(kElements, 1.0F), outer_(kElements, 2.0F), residual_(kElements, 3.0F) {
    path_ = state_path(folder_, "paris");
    saver_.emplace(path_, disk_);
  }
  ~StateSaverTest() override {
    disk_.open_gate();
    saver_.reset();
  }

  void save(std::uint64_t round, RunId run = RunId{7}) {
    StateHeader header;
    header.swarm = "gpt2";
    header.site = "paris";
    header.run = run;
    header.round = RoundId{round};
    header.digest = digest_of_state(digest_of_vector(anchor_), digest_of_vector(outer_));
    header.elements = kElements;
    header.outer_state = true;
    header.residual = {{}};
    saver_->save(std::move(header), anchor_, outer_, residual_);
  }
  // The round that lies there, with its vectors in `saved_...`; 0: none.
  std::uint64_t saved_round() {
    saver_->wait();
    const auto header = read_state_header(path_);
    EXPECT_TRUE(header.ok()) << header.status().to_string();
    if (!header.ok() || !header->has_value()) return 0;
    saved_anchor_.resize(kElements);
    saved_outer_.resize(kElements);
    const Status status = read_state_into(path_, **header, saved_anchor_, saved_outer_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const Result<StoredResidual> residual = read_residual(path_, **header);
    EXPECT_TRUE(residual.ok()) << residual.status().to_string();
    if (residual.ok()) saved_residual_ = residual->values;
    return (*header)->round.value;
  }

  std::string path_;
  std::vector<float> anchor_, outer_, residual_;
  std::vector<float> saved_anchor_, saved_outer_, saved_residual_;
  GatedDisk disk_{GatedDisk::Of::kWrite};
  std::optional<StateSaver> saver_;
};

TEST_F(StateSaverTest, SavedStateComesBack) {
  save(4);
  EXPECT_EQ(saved_round(), 4U);
  EXPECT_TRUE(all_are(saved_anchor_, 1.0F));
  EXPECT_TRUE(all_are(saved_outer_, 2.0F));
  EXPECT_TRUE(all_are(saved_residual_, 3.0F));
  EXPECT_FALSE(saver_->overdue());
}

TEST_F(StateSaverTest, AnEndInGoodOrderIsMarkedBehindWhatIsBeingSaved) {
  const auto ended = [this] {
    saver_->wait();
    const auto header = read_state_header(path_);
    return header.ok() && header->has_value() && (*header)->ended;
  };
  disk_.shut();
  save(4);
  disk_.wait_until_reached(1);
  saver_->mark(true);
  disk_.open_gate();
  EXPECT_TRUE(ended());
  EXPECT_EQ(saved_round(), 4U);
  saver_->mark(false);
  EXPECT_FALSE(ended());
  saver_->mark(true);
  save(5);
  EXPECT_FALSE(ended()) << "who saves goes on";
}

// A run that was gone on with apart, and that the swarm does not go on from.
TEST_F(StateSaverTest, AnUnusedStateIsMovedAside) {
  save(24);
  ASSERT_EQ(saved_round(), 24U);
  saver_.emplace(path_, disk_);
  saver_->found({RunId{7}, RoundId{24}, Digest{1, 1}});
  saver_->takes({RunId{8}, RoundId{3}, Digest{2, 2}});
  EXPECT_FALSE(fs::exists(path_ + ".not-used-1")) << "nothing takes its place yet";
  saver_->mark(true);
  saver_->wait();
  EXPECT_FALSE((*read_state_header(path_))->ended) << "another run's";
  ::testing::internal::CaptureStderr();
  save(4, RunId{8});
  EXPECT_EQ(saved_round(), 4U);
  save(5, RunId{8});
  EXPECT_EQ(saved_round(), 5U);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("the state of round 24 of run 7 in " + path_ +
                              " is not what the swarm goes on from: it is "
                              "at round 3 of run 8. It is kept as " +
                              path_ + ".not-used-1"),
                    HasSubstr("<run>~<site>~....record"), HasSubstr("[state.not-used]")));
  const auto kept = read_state_header(path_ + ".not-used-1");
  ASSERT_TRUE(kept.ok() && kept->has_value());
  EXPECT_EQ((*kept)->round, RoundId{24});
  EXPECT_FALSE(fs::exists(path_ + ".not-used-2"));
}

TEST_F(StateSaverTest, StateTheSwarmContinuesFromOrHasPassedIsNotMovedAside) {
  save(24);
  ASSERT_EQ(saved_round(), 24U);
  saver_->takes({RunId{8}, RoundId{24}, digest_of_state(digest_of_vector(anchor_), digest_of_vector(outer_))});
  saver_->takes({RunId{8}, RoundId{25}, Digest{2, 2}});
  saver_->takes({RunId{7}, RoundId{24}, Digest{2, 2}});  // that one is damaged
  save(25, RunId{8});
  EXPECT_EQ(saved_round(), 25U);
  EXPECT_FALSE(fs::exists(path_ + ".not-used-1"));
}

TEST_F(StateSaverTest, OnlyAStateOfTheContinuedRunIsMarked) {
  save(24);
  for (const std::uint64_t round : {3U, 24U, 90U}) {
    saver_->takes({RunId{8}, RoundId{round}, Digest{2, 2}});
    saver_->mark(true);
    saver_->wait();
    EXPECT_FALSE((*read_state_header(path_))->ended) << "another run's, which is at round " << round;
  }
  saver_->takes({RunId{7}, RoundId{25}, Digest{3, 3}});
  saver_->mark(true);
  saver_->wait();
  EXPECT_TRUE((*read_state_header(path_))->ended);
  save(26);
  EXPECT_EQ(saved_round(), 26U);
  EXPECT_FALSE(fs::exists(path_ + ".not-used-1")) << "the site came back to that run before it had saved another";
}

// Somebody has removed it since it was found.
TEST_F(StateSaverTest, NothingIsMovedAsideIfNoFileIsThere) {
  saver_->found({RunId{7}, RoundId{24}, Digest{1, 1}});
  saver_->takes({RunId{8}, RoundId{3}, Digest{2, 2}});
  for (const std::uint64_t round : {4U, 5U}) {
    save(round, RunId{8});
    EXPECT_EQ(saved_round(), round);
  }
  EXPECT_FALSE(fs::exists(path_ + ".not-used-1"));
}

TEST_F(StateSaverTest, NeededMemoryIsFreeAtOnceAndTheSaveIsDroppedWithAMessage) {
  save(4);
  ASSERT_EQ(saved_round(), 4U);
  disk_.shut();
  const int before = disk_.reached();
  save(5);
  disk_.wait_until_reached(before + 1);
  ::testing::internal::CaptureStderr();
  saver_->release_for_write(outer_);  // returns although the disk does not
  std::ranges::fill(outer_, 9.0F);
  disk_.open_gate();
  EXPECT_EQ(saved_round(), 4U);
  EXPECT_TRUE(all_are(saved_outer_, 2.0F));
  EXPECT_FALSE(fs::exists(path_ + ".new"));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the state of round 5 was not saved"));
  EXPECT_THAT(said, HasSubstr("1.0 MB of 6.3 MB"));
  EXPECT_TRUE(saver_->overdue());
  save(6);
  EXPECT_EQ(saved_round(), 6U);
  EXPECT_TRUE(all_are(saved_outer_, 9.0F));
  EXPECT_FALSE(saver_->overdue());
}

// Residual and outer state change at the next commit, the anchor's slot a round later.
TEST_F(StateSaverTest, TheSourceMayChangeOnceCopied) {
  disk_.shut();
  save(4);
  for (int piece = 1; piece <= 6; ++piece) {  // those of residual and outer state
    disk_.wait_until_reached(piece);
    disk_.let_one_pass();
  }
  disk_.wait_until_reached(7);
  saver_->release_for_write(residual_);
  saver_->release_for_write(outer_);
  saver_->release_for_write(std::span(anchor_).first(kPiece));
  std::ranges::fill(residual_, 9.0F);
  std::ranges::fill(outer_, 9.0F);
  std::fill_n(anchor_.begin(), kPiece, 9.0F);
  disk_.open_gate();
  EXPECT_EQ(saved_round(), 4U);
  EXPECT_TRUE(all_are(saved_anchor_, 1.0F));
  EXPECT_TRUE(all_are(saved_outer_, 2.0F));
  EXPECT_TRUE(all_are(saved_residual_, 3.0F));
}

TEST_F(StateSaverTest, ChangesToOtherMemoryDoNotDropASave) {
  disk_.shut();
  save(4);
  disk_.wait_until_reached(1);
  const std::vector<float> other(kElements);
  saver_->release_for_write(other);
  saver_->release_for_write({});
  disk_.open_gate();
  EXPECT_EQ(saved_round(), 4U);
}

TEST_F(StateSaverTest, TheNewestStateWaitsWhileAnotherIsBeingSaved) {
  disk_.shut();
  save(4);
  disk_.wait_until_reached(1);
  save(5);  // returns although the disk does not
  save(6);
  EXPECT_FALSE(saver_->overdue());
  disk_.open_gate();
  EXPECT_EQ(saved_round(), 6U);
}

TEST_F(StateSaverTest, AQueuedSaveIsDroppedWhenItsMemoryIsNeeded) {
  disk_.shut();
  save(4);
  disk_.wait_until_reached(1);
  save(5);
  ::testing::internal::CaptureStderr();
  saver_->release_for_write(outer_);
  EXPECT_TRUE(saver_->overdue());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("while the state before it was being written"));
  disk_.open_gate();
  EXPECT_EQ(saved_round(), 0U);
  save(6);
  EXPECT_EQ(saved_round(), 6U);
}

TEST_F(StateSaverTest, AFullDiskIsReportedAndTheOldStateStays) {
  save(4);
  ASSERT_EQ(saved_round(), 4U);
  FailingDisk full;
  full.writing = ENOSPC;
  saver_.emplace(path_, full);
  ::testing::internal::CaptureStderr();
  save(5);
  EXPECT_EQ(saved_round(), 4U);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("No space left on device"));
  EXPECT_FALSE(fs::exists(path_ + ".new"));
  EXPECT_FALSE(saver_->overdue());
  saver_.reset();  // before the disk
}

// A disk that hangs does not keep the process: its memory goes, and the save with it.
TEST_F(StateSaverTest, ADiskThatTakesNothingIsLeft) {
  save(4);
  ASSERT_EQ(saved_round(), 4U);
  saver_.emplace(path_, disk_, std::chrono::milliseconds(20));
  const int before = disk_.reached();
  disk_.shut();
  save(5);
  disk_.wait_until_reached(before + 1);
  save(6);
  ::testing::internal::CaptureStderr();
  saver_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("round 5 for 20 ms"));
  for (std::vector<float>* gone : {&anchor_, &outer_, &residual_}) std::vector<float>().swap(*gone);
  disk_.open_gate();
  while (fs::exists(path_ + ".new")) std::this_thread::yield();
  const auto header = read_state_header(path_);
  ASSERT_TRUE(header.ok() && header->has_value());
  EXPECT_EQ((*header)->round, RoundId{4});
}

}  // namespace
}  // namespace collab::testing
