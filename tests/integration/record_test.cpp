// A site's record that cannot be kept, or is not its own: what the site says, and that the others average on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "core/runtime/leader.h"
#include "core/runtime/storage/record_store.h"
#include "core/runtime/storage/state_file.h"
#include "tests/integration/by_hand.h"
#include "tests/unit/runtime/disks.h"

namespace collab::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SessionRecord : public ByHand {
 protected:
  SessionRecord() {
    folder_ = ::testing::TempDir() + "collab-session-record-" + std::to_string(::getpid()) + "-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    swarm_.adjust = [this](SessionOptions& options, std::size_t site) {
      if (site != 1) return;
      options.disk = &disk_;
      options.record.dir = folder_;
      options.record.scope = "here";
      path_ = folder_ + "/" + record_name(record_scope(options));
      before_(record_scope(options));
    };
  }
  ~SessionRecord() override {
    disk_.making = disk_.writing = disk_.removing = 0;
    sessions_.clear();
    fs::remove_all(folder_);
  }

  void start_three() {
    start(3, [](Config& config) { config.round_timeout = std::chrono::seconds(2); });
  }
  // Until site 1 has taken part in a round: it may be on its way back into the swarm, which goes on meanwhile.
  void expect_rounds() {
    std::atomic<bool> ran = false;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    together(3, [&](std::size_t site) {
      while (!ran && std::chrono::steady_clock::now() < limit) {
        const bool mine = interval(site);
        if (site == 1 && mine) ran = true;
      }
    });
    EXPECT_TRUE(ran);
  }
  // Puts a record of that scope in the place of this site's.
  void put_record_of(const RecordScope& scope) const {
    {
      Result<RecordStore> store = RecordStore::open(folder_, scope);
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      ASSERT_TRUE(store->write(std::vector<std::byte>(8)).ok());
    }
    fs::rename(folder_ + "/" + record_name(scope), path_);
  }

  std::string folder_;
  std::string path_;  // of the record
  FailingDisk disk_;
  std::function<void(const RecordScope&)> before_ = [](const RecordScope&) {};
};

TEST_F(SessionRecord, IsKeptInMemoryOnAReadOnlyFolderAndRoundsGoOn) {
  disk_.making = EROFS;
  start_three();
  expect_rounds();
  EXPECT_FALSE(fs::exists(path_));
  finish_all();
}

TEST_F(SessionRecord, IsKeptInMemoryOnAFullFolderAndRoundsGoOn) {
  start_three();
  expect_rounds();
  EXPECT_TRUE(fs::exists(path_));
  disk_.writing = ENOSPC;
  expect_rounds();
  EXPECT_FALSE(fs::exists(path_)) << "it says less than the site knows";
  finish_all();
}

// What lies there would be taken for all the site has promised and accepted, once the disk works again.
TEST_F(SessionRecord, StopsItsSiteAloneIfItCanBeNeitherWrittenNorRemoved) {
  start_three();
  expect_rounds();
  disk_.making = disk_.removing = EROFS;
  Status why;
  together(3, [&](std::size_t site) {
    if (site != 1) return static_cast<void>(interval(site));
    for (std::size_t step = 0; step < 4 && why.ok(); ++step) {
      train_one_step(values(1), 1, 100 + step);
      why = sessions_[1]->step(8).status();
    }
    sessions_[1].reset();
  });
  EXPECT_THAT(why.message(), HasSubstr("[record.stale]"));
  EXPECT_TRUE(fs::exists(path_));
  together(3, [this](std::size_t site) {
    if (site == 1) return;
    EXPECT_TRUE(interval(site));
  });
  together(3, [this](std::size_t site) {
    if (site == 1) return;
    EXPECT_TRUE(sessions_[site]->finish().ok());
  });
}

TEST_F(SessionRecord, ARecordOfAnotherRunUnderItsPathIsSetAsideAndRoundsContinue) {
  before_ = [this](RecordScope scope) {
    scope.run = "another";
    put_record_of(scope);
  };
  start_three();
  expect_rounds();
  EXPECT_TRUE(fs::exists(path_ + ".other-1"));
  EXPECT_TRUE(fs::exists(path_)) << "its own";
  finish_all();
}

TEST_F(SessionRecord, ARecordWithAWrongChecksumIsSetAsideAndRoundsContinue) {
  before_ = [this](const RecordScope& scope) {
    put_record_of(scope);
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  };
  start_three();
  expect_rounds();
  EXPECT_TRUE(fs::exists(path_ + ".damaged-1"));
  EXPECT_TRUE(fs::exists(path_)) << "its own";
  finish_all();
}

// What three sites have left beside their anchors, where one of them begins again without the others.
class BeganAgain : public SessionRecord {
 protected:
  // Three sites average and end in good order. `killed`: what site 1 has left is as if it had not ended.
  void live(bool killed) {
    const std::string record = folder_ + "/copy";
    start(3, [this](Config& config) {
      config.state_dir = folder_;
      config.round_timeout = std::chrono::seconds(2);
      config.straggler_grace = std::chrono::seconds(2);  // who comes late under load is to be in the last round
    });
    expect_rounds();
    fs::copy_file(path_, record);
    finish_all();
    sessions_.clear();  // what is being saved is on the disk then
    EXPECT_FALSE(fs::exists(path_)) << "the record of a run that has ended";
    if (!killed) return;
    fs::rename(record, path_);
    EXPECT_TRUE(mark_ended(system_disk(), state_path(folder_, "site1"), false).ok());
  }
  // Site 1 alone.
  Status begin_again() {
    swarm_.sites = 1;
    swarm_.config.join_timeout = std::chrono::seconds(12);  // names are told after 10
    swarm_.start_coordinator();
    auto session = make_session(swarm_.options(1, 0), swarm_.parameters[1], nullptr);
    return session.ok() ? (*session)->begin() : session.status();
  }
};

TEST_F(BeganAgain, ASiteWithADamagedRecordWaitsForTheMembersInItsStateFile) {
  live(true);
  std::fstream(path_, std::ios::binary | std::ios::in | std::ios::out).put('x');
  const Status status = begin_again();
  EXPECT_TRUE(fs::exists(path_ + ".damaged-1"));
  EXPECT_THAT(status.message(), AllOf(HasSubstr("1 of the 3 sites"), HasSubstr("collab forget site0 site2")));
}

TEST_F(BeganAgain, ASiteThatEndedInGoodOrderWaitsForNobody) {
  live(false);
  const Status status = begin_again();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace collab::testing
