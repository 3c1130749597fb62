// Events are appended to plain files that only their owner can read.
#include "core/runtime/events_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/protocol/formatting.h"
#include "tests/unit/runtime/disks.h"

namespace collab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class EventsFileTest : public ::testing::Test {
 protected:
  EventsFileTest() { fs::create_directories(folder_); }
  ~EventsFileTest() override { fs::remove_all(folder_); }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string folder_ = ::testing::TempDir() + "collab-events-" + std::to_string(::getpid());
};

TEST_F(EventsFileTest, IsItsOwnersAloneAndGrows) {
  const std::string path = folder_ + "/events.jsonl";
  for (const char* site : {"paris", "\xE2\x80\xAErome\x1b"}) EventsFile::open(path)->write(site, "join", {});
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_THAT(text_of(path), HasSubstr(R"("site":"paris","event":"join")"));
  EXPECT_THAT(text_of(path), HasSubstr(R"("site":"\u202erome\u001b","event":"join")"));
}

TEST_F(EventsFileTest, WarnsOfAFileThatOthersCanReadAndKeepsItsMode) {
  const std::string path = folder_ + "/events.jsonl";
  std::ofstream(path) << "";
  for (const fs::perms mode : {fs::perms(0644), fs::perms(0600)}) {
    fs::permissions(path, mode);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(EventsFile::open(path).ok());
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.find("mode 644): chmod 600 " + path) != std::string::npos, mode == fs::perms(0644)) << told;
    EXPECT_EQ(fs::status(path).permissions(), mode);
  }
}

TEST_F(EventsFileTest, APipeIsNotWaitedForAndALinkNotFollowed) {
  const std::string pipe = folder_ + "/pipe", link = folder_ + "/link", precious = folder_ + "/precious";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(precious) << "x";
  fs::create_symlink(precious, link);
  for (const std::string& path : {pipe, link, folder_, std::string("/dev/null")}) {
    const auto events = EventsFile::open(path);
    ASSERT_FALSE(events.ok()) << path;
    EXPECT_THAT(events.status().message(), HasSubstr("COLLAB_EVENTS_FILE: cannot append to " + path));
  }
  EXPECT_EQ(text_of(precious), "x");
}

TEST_F(EventsFileTest, OneKindOfEventIsRateLimitedAndTheRestCounted) {
  const std::string path = folder_ + "/events.jsonl";
  auto file = EventsFile::open(path);
  Notes notes(*file, "paris");
  const auto flood = protocol::make_note(protocol::Note::Level::kDebug, "ignored", "a stranger says what it likes");
  for (int i = 0; i < 60'000; ++i) notes.record(TimePoint(std::chrono::milliseconds(i)), flood);
  notes.record(TimePoint(std::chrono::seconds(60)),
               protocol::make_note(protocol::Note::Level::kDebug, "join", "tokyo has joined"));
  notes.record(TimePoint(std::chrono::seconds(120)), flood);
  const std::string text = text_of(path);
  EXPECT_LE(text.size(), Notes::kOfKindAtOnce + 62 * Notes::kOfKindASecond);
  EXPECT_GE(text.size(), Notes::kOfKindAtOnce / 4);
  EXPECT_THAT(text, HasSubstr("tokyo has joined"));
  EXPECT_THAT(text, HasSubstr("others of this kind since the last such line)"));
  EXPECT_THAT(text, HasSubstr("\"kept_back\":"));
}

// As many kinds as somebody can cause, of which each keeps to its own share.
TEST_F(EventsFileTest, ManyKindsOfEventsShareOneRateLimit) {
  const std::string path = folder_ + "/events.jsonl";
  auto file = EventsFile::open(path);
  Notes notes(*file, "paris");
  constexpr int kSeconds = 60;
  for (int i = 0; i < kSeconds * 100; ++i) {
    const auto flood =
        protocol::make_note(protocol::Note::Level::kDebug, "kind-" + std::to_string(i % 100), std::string(200, 'x'));
    notes.record(TimePoint(std::chrono::milliseconds(10 * i)), flood);
  }
  const std::size_t told = text_of(path).size();
  EXPECT_LE(told, Notes::kAtOnce + (kSeconds + 2) * Notes::kASecond);
  EXPECT_GE(told, Notes::kAtOnce / 4);
}

TEST_F(EventsFileTest, TheNumberOfKindsIsBounded) {
  auto file = EventsFile::open("");
  Notes notes(*file, "paris");
  for (int i = 0; i < 10'000; ++i) {
    notes.record(TimePoint(), protocol::make_note(protocol::Note::Level::kDebug, "kind-" + std::to_string(i), "words"));
  }
  EXPECT_EQ(notes.kinds(), Notes::kMostKinds);
}

TEST_F(EventsFileTest, TheCodeOfAMessageIsWrittenBesideTheReason) {
  const std::string path = folder_ + "/events.jsonl";
  auto file = EventsFile::open(path);
  Notes notes(*file, "paris");
  notes.record(TimePoint(), protocol::make_note(protocol::Note::Level::kDebug, "refused",
                                                "it is full [join.full]; asking once more"));
  EXPECT_THAT(text_of(path), HasSubstr(R"("reason":"it is full [join.full]; asking once more","code":"join.full"})"));
  notes.record(TimePoint(), protocol::make_note(protocol::Note::Level::kDebug, "join", "tokyo has joined"));
  EXPECT_THAT(text_of(path), HasSubstr(R"("reason":"tokyo has joined"})"));
}

TEST_F(EventsFileTest, LinesAfterATornOneAreWhole) {
  const std::string path = folder_ + "/events.jsonl";
  testing::FailingDisk disk;
  {
    auto file = EventsFile::open(path, disk);
    file->write("paris", "join", {});
    disk.tearing = true;
    file->write("paris", "leave", {});
    disk.tearing = false;
    disk.writing = ENOSPC;
    file->write("paris", "suspect", {});
    disk.writing = 0;
    file->write("paris", "resume", {});
    file->write("paris", "round", {});
  }
  std::istringstream lines(text_of(path));
  std::vector<std::string> whole;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{\"t\":") && line.ends_with("\"}")) whole.push_back(line.substr(line.find("\"event\":")));
  }
  EXPECT_THAT(whole, ::testing::ElementsAre(R"("event":"join"})", R"("event":"resume"})", R"("event":"round"})"));
}

TEST_F(EventsFileTest, EventsForASlowDiskWaitUpToABoundAndTheRestAreCounted) {
  const std::string path = folder_ + "/events.jsonl";
  testing::GatedDisk disk(testing::GatedDisk::Of::kAppend);
  disk.shut();
  ::testing::internal::CaptureStderr();
  {
    auto file = EventsFile::open(path, disk);
    const std::string half(EventsFile::kMostWaiting / 2, 'x');
    for (int i = 0; i < 4; ++i) file->write("paris", "join", {{"reason", "\"" + half + "\""}});
    disk.open_gate();
  }
  EXPECT_LT(fs::file_size(path), EventsFile::kMostWaiting);
  EXPECT_GT(fs::file_size(path), EventsFile::kMostWaiting / 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("3 lines were left out"));
}

}  // namespace
}  // namespace collab
