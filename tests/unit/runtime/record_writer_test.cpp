// Records are written in turn. Of the waiting ones only the newest is written, and every number is reported.
#include "core/runtime/storage/record_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <tuple>

#include "core/base/fair_queue.h"
#include "tests/unit/runtime/disks.h"
#include "tests/unit/runtime/in_own_folder.h"

namespace collab::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> body_of(std::uint64_t number) { return {std::byte{7}, static_cast<std::byte>(number)}; }

using Answer = std::pair<std::uint64_t, StatusCode>;

class RecordWriterTest : public testing::InOwnFolder {
 protected:
  RecordWriterTest() {
    scope_ = {.run = "gpt2", .site = "paris", .generation = 1, .rendezvous = "here", .model = {3, 4}};
  }

  void start(Disk& disk, std::chrono::milliseconds disk_limit = std::chrono::seconds(10)) {
    Result<RecordStore> store = RecordStore::open(folder_, scope_, disk);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    writer_.emplace(
        *std::move(store),
        [this](std::uint64_t number, const Status& how) {
          told_.push(0, {number, how.code()});
        },
        disk_limit);
  }
  void write(std::uint64_t number) { writer_->write(body_of(number), number); }
  Answer next() {
    return told_.pop_until(SteadyClock().now() + std::chrono::seconds(30)).value_or(Answer(0, StatusCode::kTimeout));
  }
  std::vector<std::byte> kept() {
    writer_.reset();
    const Result<RecordStore> store = RecordStore::open(folder_, scope_);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store->read().value_or(std::vector<std::byte>());
  }

  RecordScope scope_;
  FairQueue<Answer> told_;
  std::optional<RecordWriter> writer_;
};

TEST_F(RecordWriterTest, EachWriteIsConfirmedOnceItIsDurable) {
  start(system_disk());
  for (std::uint64_t number = 1; number <= 3; ++number) {
    write(number);
    EXPECT_EQ(next(), Answer(number, StatusCode::kOk));
  }
  EXPECT_TRUE(writer_->durable());
  EXPECT_EQ(kept(), body_of(3));
}

TEST_F(RecordWriterTest, WritesTheNewestWaitingRecordAndTellsAllCallers) {
  GatedDisk disk(GatedDisk::Of::kWrite);
  start(disk);
  disk.shut();
  write(1);
  disk.wait_until_reached(1);
  for (std::uint64_t number = 2; number <= 50; ++number) write(number);  // returns although the disk does not
  EXPECT_EQ(told_.pop_until(TimePoint{}), std::nullopt);
  disk.open_gate();
  for (std::uint64_t number = 1; number <= 50; ++number) EXPECT_EQ(next(), Answer(number, StatusCode::kOk));
  EXPECT_EQ(disk.reached(), 2);
  EXPECT_EQ(kept(), body_of(50));
}

TEST_F(RecordWriterTest, WritesTheWaitingRecordBeforeItEnds) {
  GatedDisk disk(GatedDisk::Of::kSync);
  start(disk);
  disk.shut();
  write(1);
  disk.wait_until_reached(1);
  write(2);
  disk.open_gate();
  EXPECT_EQ(kept(), body_of(2));
  EXPECT_EQ(next().first, 1U);
  EXPECT_EQ(next().first, 2U);
}

TEST_F(RecordWriterTest, AHangingDiskDoesNotDelayTheEndAndConfirmsNothingLater) {
  // Not destroyed before the thread that stands in it.
  static GatedDisk disk(GatedDisk::Of::kSync);
  start(disk, std::chrono::milliseconds(20));
  disk.shut();
  write(1);
  disk.wait_until_reached(1);
  ::testing::internal::CaptureStderr();
  writer_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("may be lost"));
  // The lock stays with the process that may still write.
  EXPECT_EQ(RecordStore::open(folder_, scope_).status().code(), StatusCode::kRefused);
  disk.open_gate();
  while (!RecordStore::open(folder_, scope_).ok()) std::this_thread::yield();
  EXPECT_EQ(told_.pop_until(TimePoint{}), std::nullopt);
}

TEST_F(RecordWriterTest, AFailedWriteIsReportedAndTheNextSucceedsInMemory) {
  FailingDisk disk;
  start(disk);
  write(1);
  EXPECT_EQ(next(), Answer(1, StatusCode::kOk));
  disk.writing = ENOSPC;
  write(2);
  EXPECT_EQ(next(), Answer(2, StatusCode::kUnavailable));
  EXPECT_FALSE(writer_->durable());
  EXPECT_FALSE(writer_->stale());
  write(3);
  EXPECT_EQ(next(), Answer(3, StatusCode::kOk));
  EXPECT_EQ(kept(), std::vector<std::byte>());
}

TEST_F(RecordWriterTest, ARecordThatCannotBeRemovedIsStaleOnceItsFailureIsReported) {
  FailingDisk disk;
  start(disk);
  write(1);
  next();
  disk.making = disk.removing = EROFS;
  write(2);
  EXPECT_EQ(next(), Answer(2, StatusCode::kUnavailable));
  EXPECT_TRUE(writer_->stale());
  disk.making = disk.removing = 0;
}

TEST_F(RecordWriterTest, RemovingComesInItsTurn) {
  start(system_disk());
  write(1);
  writer_->remove();
  EXPECT_EQ(kept(), std::vector<std::byte>());
  EXPECT_EQ(next(), Answer(1, StatusCode::kOk));
}

}  // namespace
}  // namespace collab::testing
