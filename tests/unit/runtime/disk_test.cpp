// How bytes become durable, and files that take another's place when they are whole.
#include "core/runtime/storage/disk.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/runtime/disks.h"

namespace collab {
namespace {

using ::testing::ElementsAre;
using testing::FailingDisk;
using ::testing::HasSubstr;
using testing::NotingDisk;

class DiskTest : public ::testing::Test {
 protected:
  DiskTest() : folder_(::testing::TempDir() + "disk-" + std::to_string(::getpid()) + "/") {
    std::filesystem::create_directories(folder_);
  }
  ~DiskTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string text_of(const std::string& path) const {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void put(const std::string& path, const std::string& text) const { std::ofstream(path) << text; }
  static std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  }

  const std::string folder_;
  const std::string path_ = folder_ + "state";
};

TEST_F(DiskTest, TheOldFileStaysUntilTheNewOneTakesItsPlace) {
  put(path_, "old");
  auto file = NewFile::make(system_disk(), path_);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE(file->write(2, bytes("w!")).ok());
  ASSERT_TRUE(file->write(0, bytes("ne")).ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(text_of(path_), "old");
  ASSERT_TRUE(file->place().ok());
  EXPECT_EQ(text_of(path_), "new!");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(DiskTest, AnAbandonedNewFileLeavesNothingBehind) {
  put(path_, "old");
  {
    auto file = NewFile::make(system_disk(), path_);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(0, bytes("new")).ok());
    const NewFile moved = std::move(*file);
    EXPECT_TRUE(std::filesystem::exists(path_ + ".new"));
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
  EXPECT_EQ(text_of(path_), "old");
}

TEST_F(DiskTest, TheNameOfANewFileIsDurableToo) {
  NotingDisk disk;
  auto file = NewFile::make(disk, path_);
  ASSERT_TRUE(file.ok() && file->write(0, bytes("new")).ok() && file->sync().ok() && file->place().ok());
  const std::string folder = folder_.substr(0, folder_.size() - 1);
  EXPECT_THAT(disk.calls, ElementsAre("make state.new", "write", "sync", "rename state.new state",
                                      "open " + folder.substr(folder.rfind('/') + 1), "sync"));
}

// A process that died left it, or somebody means ill.
TEST_F(DiskTest, AnExistingFileIsReplacedNeverWrittenInto) {
  put(folder_ + "else", "another's");
  std::filesystem::create_symlink(folder_ + "else", path_ + ".new");
  auto file = NewFile::make(system_disk(), path_);
  ASSERT_TRUE(file.ok() && file->write(0, bytes("new")).ok() && file->sync().ok() && file->place().ok());
  EXPECT_EQ(text_of(folder_ + "else"), "another's");
  EXPECT_EQ(text_of(path_), "new");
}

TEST_F(DiskTest, ANewFileThatAnotherProcessReplacedIsNotMovedIntoPlace) {
  put(path_, "old");
  auto first = NewFile::make(system_disk(), path_);
  auto second = NewFile::make(system_disk(), path_);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->write(0, bytes("first")).ok() && first->sync().ok());
  EXPECT_THAT(first->place().message(), HasSubstr("another process has removed " + path_ + ".new"));
  EXPECT_EQ(text_of(path_), "old");
  { const NewFile ended = std::move(*first); }
  ASSERT_TRUE(second->write(0, bytes("second")).ok() && second->sync().ok());
  EXPECT_TRUE(second->place().ok());
  EXPECT_EQ(text_of(path_), "second");
}

TEST_F(DiskTest, EachFailureSaysWhatFailedAndOfWhichFile) {
  FailingDisk disk;
  disk.making = EACCES;
  EXPECT_THAT(NewFile::make(disk, path_).status().message(), HasSubstr("cannot make " + path_ + ".new: Permission"));
  disk.making = 0;
  auto file = NewFile::make(disk, path_);
  ASSERT_TRUE(file.ok());
  disk.writing = ENOSPC;
  EXPECT_THAT(file->write(0, bytes("half of it")).message(), HasSubstr("cannot write " + path_ + ".new: No space"));
  disk.syncing = EIO;
  EXPECT_THAT(file->sync().message(), HasSubstr("cannot sync " + path_ + ".new"));
  disk.renaming = EROFS;
  EXPECT_THAT(file->place().message(), HasSubstr("cannot rename " + path_ + ".new: Read-only"));
}

TEST_F(DiskTest, OnlyPlainFilesAreOpened) {
  put(path_, "plain");
  ASSERT_EQ(::mkfifo((folder_ + "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(path_, folder_ + "link");
  const auto error_of = [](const std::string& path) {
    const int fd = open_plain(system_disk(), path.c_str(), O_RDONLY);
    if (fd < 0) return errno;
    ::close(fd);
    return 0;
  };
  EXPECT_EQ(error_of(path_), 0);
  EXPECT_EQ(error_of(folder_ + "pipe"), EINVAL) << "it would be waited for";
  EXPECT_EQ(error_of(folder_ + "link"), ELOOP) << "it leads elsewhere";
  EXPECT_EQ(error_of(folder_), EISDIR);
  EXPECT_EQ(error_of(folder_ + "none"), ENOENT);
}

TEST(AsFileName, LeavesNoWayOutOfTheFolderAndTellsNamesApart) {
  EXPECT_EQ(as_file_name("paris-2.example_x"), "paris-2.example_x");
  EXPECT_EQ(as_file_name("../etc"), "%2e.%2fetc");
  EXPECT_EQ(as_file_name("a b%"), "a%20b%25");
  EXPECT_EQ(as_file_name("é"), "%c3%a9");
  EXPECT_NE(as_file_name("a/b"), as_file_name("a%2fb"));
}

}  // namespace
}  // namespace collab
