// Which process owns a file. record_store_test.cpp has what forked children and killed processes leave of it.
#include "core/runtime/storage/file_lock.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace collab {
namespace {

using ::testing::HasSubstr;

class FileLockTest : public ::testing::Test {
 protected:
  FileLockTest() : path_(::testing::TempDir() + "lock-" + std::to_string(::getpid())) {}
  ~FileLockTest() override { std::filesystem::remove(path_); }

  static std::string us() { return "process " + std::to_string(::getpid()) + " on host "; }
  const std::string path_;
};

TEST_F(FileLockTest, TheSecondProcessIsToldTheHolder) {
  const auto lock = FileLock::take(path_);
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  const auto second = FileLock::take(path_);
  EXPECT_EQ(second.status().code(), StatusCode::kRefused);
  EXPECT_THAT(second.status().message(), HasSubstr(us()));
  EXPECT_THAT(FileLock::holder_of(path_), HasSubstr(us())) << "who only asks hears it too";
}

TEST_F(FileLockTest, AReleasedLockLeavesItsFileWithoutAHolder) {
  { ASSERT_TRUE(FileLock::take(path_).ok()); }
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_EQ(FileLock::holder_of(path_), "");
  EXPECT_TRUE(FileLock::take(path_).ok());
}

TEST_F(FileLockTest, HasNoHolderWithoutAFile) {
  EXPECT_EQ(FileLock::holder_of(path_), "");
  EXPECT_FALSE(std::filesystem::exists(path_)) << "who asks makes none";
}

TEST_F(FileLockTest, AnUnreadableFileStillHasAHolder) {
  auto lock = FileLock::take(path_);
  ASSERT_TRUE(lock.ok());
  std::ofstream(path_) << "no pid";
  EXPECT_EQ(FileLock::take(path_).status().message(), "another process");
}

TEST_F(FileLockTest, MovedItIsTheSameLock) {
  auto lock = FileLock::take(path_);
  ASSERT_TRUE(lock.ok());
  {
    const FileLock moved = std::move(*lock);
    EXPECT_EQ(FileLock::take(path_).status().code(), StatusCode::kRefused);
  }
  EXPECT_TRUE(FileLock::take(path_).ok()) << "it went with the one it was moved to";
}

TEST_F(FileLockTest, ARemovedNameGivesTheNextOneItsOwnFile) {
  auto lock = FileLock::take(path_);
  ASSERT_TRUE(lock.ok());
  lock->remove_name();
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto next = FileLock::take(path_);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  lock->remove_name();
  EXPECT_TRUE(std::filesystem::exists(path_)) << "the next one's name is not ours to remove";
}

TEST_F(FileLockTest, ReportsAMissingFolder) {
  const auto lock = FileLock::take(path_ + "-none/lock");
  EXPECT_EQ(lock.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(lock.status().message(), HasSubstr("cannot make " + path_ + "-none/lock: No such file"));
}

}  // namespace
}  // namespace collab
