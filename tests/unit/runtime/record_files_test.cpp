// Files in a folder of records are found with their owners. Only old files without an owner are removed.
#include "core/runtime/storage/record_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/runtime/storage/record_store.h"
#include "tests/unit/runtime/in_own_folder.h"

namespace collab::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::HasSubstr;

class RecordFilesTest : public testing::InOwnFolder {
 protected:
  RecordStore open(const std::string& site) {
    Result<RecordStore> store = RecordStore::open(
        folder_, {.run = "gpt2", .site = site, .generation = 1, .rendezvous = "here", .model = {3, 4}});
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return *std::move(store);
  }
  std::string keep(const std::string& site) {
    RecordStore store = open(site);
    EXPECT_TRUE(store.write(std::vector<std::byte>(100)).ok());
    return store.path();
  }
  static void make_older(const std::string& path, seconds by) {
    fs::last_write_time(path, fs::last_write_time(path) - by);
  }
};

TEST_F(RecordFilesTest, EachIsFoundOnceWithItsOwner) {
  const std::string left = keep("oslo");
  make_older(left, seconds(1000));
  std::ofstream(left + ".damaged-1") << "some bytes";
  make_older(left + ".damaged-1", seconds(2000));
  for (const char* other : {"/paris.collab", "/best.record", "/gpt2~paris~1~0123456789abcdef~.record", "/.record"}) {
    std::ofstream(folder_ + other) << "not ours";
  }
  std::ofstream(left + ".backup") << "nor that";
  const RecordStore held = open("paris");
  const std::vector<RecordFile> found = find_records(folder_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].path, left);
  EXPECT_GE(found[0].bytes, 110U);
  EXPECT_GE(found[0].age, seconds(1000));
  EXPECT_LT(found[0].age, seconds(1900));
  EXPECT_EQ(found[0].holder, "");
  EXPECT_EQ(found[1].path, held.path());
  EXPECT_THAT(found[1].holder, HasSubstr("process " + std::to_string(::getpid()) + " on host "));
  EXPECT_TRUE(find_records(folder_ + "/nowhere").empty());
}

TEST_F(RecordFilesTest, OnlyOldRecordsWithoutAHolderAreRemoved) {
  const std::string old = keep("oslo");
  const std::string young = keep("lima");
  std::ofstream(old + ".other-1") << "some bytes";
  for (const std::string& path : {old, old + ".other-1"}) make_older(path, seconds(1000));
  EXPECT_EQ(remove_record(young, seconds(500)).code(), StatusCode::kRefused);
  EXPECT_TRUE(fs::exists(young));
  {
    RecordStore held = open("oslo");  // which writes it back
    make_older(old, seconds(1000));
    const Status refused = remove_record(old, seconds(500));
    EXPECT_EQ(refused.code(), StatusCode::kRefused);
    EXPECT_THAT(refused.message(), HasSubstr("process " + std::to_string(::getpid())));
    EXPECT_TRUE(fs::exists(old));
  }
  EXPECT_TRUE(remove_record(old, seconds(500)).ok());
  const std::vector<RecordFile> found = find_records(folder_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].path, young);
  EXPECT_FALSE(fs::exists(old + ".other-1"));
  EXPECT_FALSE(fs::exists(lock_of_record(old)));
  EXPECT_TRUE(remove_record(old, seconds(500)).ok());  // gone already
}

TEST_F(RecordFilesTest, ALockThatIsLeftAloneIsRemovedToo) {
  const std::string path = open("oslo").path();  // nothing was written
  make_older(lock_of_record(path), seconds(1000));
  ASSERT_EQ(find_records(folder_).size(), 1U);
  EXPECT_TRUE(remove_record(path, seconds(500)).ok());
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace collab::testing
