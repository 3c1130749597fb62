// One process as leader and as rank: it reads what was sealed, and a clear error refuses what cannot be read.
#include "core/arena/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "core/arena/mapping.h"
#include "core/arena/naming.h"
#include "core/base/digest.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kAtOnce{0};

class ArenaTest : public ::testing::Test {
 protected:
  ArenaTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = ::testing::TempDir() + "collab-arena-" + std::to_string(::getpid()) + "-" + info->name();
    for (const char* place : {"/memory", "/disk"}) {
      std::filesystem::create_directories(root_ + place);
      spec_.places.push_back({root_ + place});
    }
    spec_.key = {"gpt2", "paris", {11, 22}};
    spec_.elements = 5000;
    spec_.outer_state = true;
    spec_.ranks = 3;
  }
  ~ArenaTest() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<ArenaWriter> create() {
    auto writer = create_arena(spec_);
    EXPECT_TRUE(writer.ok()) << writer.status().to_string();
    return *std::move(writer);
  }
  std::unique_ptr<ArenaReader> open() {
    auto reader = open_arena(spec_, kAtOnce);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return *std::move(reader);
  }
  std::size_t files(const std::string& place) const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(root_ + place), {}));
  }
  static SealedAnchor seal(ArenaWriter& writer, std::uint64_t round, float value) {
    writer.begin_outer_update();
    std::ranges::fill(writer.scratch(), value);
    std::ranges::fill(writer.outer(), -value);
    const std::span<float> outer = writer.outer();
    const Digest digest =
        digest_of_state(digest_of_vector(writer.scratch()), outer.empty() ? Digest{} : digest_of_vector(outer));
    const SealedAnchor as{RunId{7}, RoundId{round}, digest};
    writer.seal(as);
    return as;
  }

  std::string root_;
  ArenaSpec spec_;
};

TEST_F(ArenaTest, AFreshArenaHasNothingSealedAndZeroOuterState) {
  const auto writer = create();
  EXPECT_EQ(writer->sealed(), std::nullopt);
  EXPECT_TRUE(writer->anchor().empty());
  EXPECT_EQ(writer->scratch().size(), 5000U);
  EXPECT_THAT(writer->outer(), ::testing::Each(0.0F));
  const auto reader = open();
  EXPECT_EQ(reader->sealed(), std::nullopt);
  EXPECT_TRUE(reader->anchor().empty());
  EXPECT_TRUE(reader->previous().empty());
}

TEST_F(ArenaTest, ReadersSeeWhatIsSealedAndNothingBefore) {
  const auto writer = create();
  const auto reader = open();
  const SealedAnchor first = seal(*writer, 1, 1.5F);
  EXPECT_EQ(reader->sealed(), first);
  EXPECT_THAT(reader->anchor(), ::testing::Each(1.5F));
  EXPECT_TRUE(reader->previous().empty());
  std::ranges::fill(writer->scratch(), 9.0F);
  EXPECT_EQ(reader->sealed(), first);
  EXPECT_THAT(reader->anchor(), ::testing::Each(1.5F));
  const SealedAnchor second = seal(*writer, 2, 2.5F);
  EXPECT_EQ(writer->sealed(), second);
  EXPECT_EQ(reader->sealed(), second);
  EXPECT_THAT(reader->anchor(), ::testing::Each(2.5F));
  EXPECT_THAT(reader->previous(), ::testing::Each(1.5F));
  EXPECT_THAT(writer->outer(), ::testing::Each(-2.5F));
}

TEST_F(ArenaTest, AnAttachmentIsSealedWithItsAnchorAndHiddenFromReaders) {
  const auto writer = create();
  const auto reader = open();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const std::vector<std::byte> attached(round == 3 ? 0 : kMaxAttachedBytes / round, static_cast<std::byte>(round));
    writer->seal({RunId{7}, RoundId{round}, Digest{round, 2}, attached});
    EXPECT_EQ(writer->sealed(), (SealedAnchor{RunId{7}, RoundId{round}, Digest{round, 2}, attached}));
    EXPECT_EQ(reader->sealed(), (SealedAnchor{RunId{7}, RoundId{round}, Digest{round, 2}}));
  }
}

TEST_F(ArenaTest, AnAttachmentThatIsTooLargeIsLeftOutAndReported) {
  const auto writer = create();
  ::testing::internal::CaptureStderr();
  writer->seal({RunId{7}, RoundId{1}, {}, std::vector<std::byte>(kMaxAttachedBytes + 1)});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("without the 65537 bytes"));
  EXPECT_TRUE(writer->sealed()->attached.empty());
}

TEST_F(ArenaTest, ResultsAndReportsTravelBothWays) {
  const auto writer = create();
  const auto reader = open();
  reader->report(2, {.call = 1, .digest = {3, 4}, .samples = 32});
  const auto report = writer->wait_report(2, 1, kAtOnce);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->digest, (Digest{3, 4}));
  EXPECT_EQ(report->samples, 32U);
  writer->publish(1, "round 1 is in place");
  const auto result = reader->wait_published(1, kAtOnce);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, "round 1 is in place");
}

TEST_F(ArenaTest, AnAnnouncementIsReadAsOfTheWritersStep) {
  const auto writer = create();
  const auto reader = open();
  writer->count(100, 102);
  EXPECT_EQ(reader->counted(), 100U);
  EXPECT_EQ(reader->announced(100, kAtOnce).value(), 102U);
  const auto late = reader->announced(101, kAtOnce);
  EXPECT_EQ(late.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(late.status().message(), HasSubstr("to reach step 101"));
  auto announced = std::async(std::launch::async, [&] { return reader->announced(101, std::chrono::seconds(20)); });
  writer->count(101, 0);
  EXPECT_EQ(announced.get().value(), 102U) << "nothing new was announced";
}

TEST_F(ArenaTest, AReaderMoreThanSevenCallsBehindIsAnError) {
  const auto writer = create();
  const auto reader = open();
  for (std::uint64_t call = 1; call <= 9; ++call) writer->publish(call, std::to_string(call));
  for (std::uint64_t call = 2; call <= 9; ++call) {
    const auto result = reader->wait_published(call, kAtOnce);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(*result, std::to_string(call));
  }
  const auto lost = reader->wait_published(1, kAtOnce);
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.status().message(), HasSubstr("call 9"));
}

TEST_F(ArenaTest, AResultThatIsTooLongIsCut) {
  const auto writer = create();
  const auto reader = open();
  writer->publish(1, std::string(100'000, 'x'));
  const auto result = reader->wait_published(1, kAtOnce);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, std::string(8192, 'x'));
}

TEST_F(ArenaTest, ATimedOutWaitNamesTheProcessItWaitedFor) {
  const auto writer = create();
  const auto reader = open();
  const auto report = writer->wait_report(1, 4, milliseconds(1));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(report.status().message(), HasSubstr("rank 1 of site paris"));
  EXPECT_THAT(report.status().message(), HasSubstr("call 4"));
  const auto result = reader->wait_published(4, milliseconds(1));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(result.status().message(), HasSubstr("pid " + std::to_string(::getpid())));
}

TEST_F(ArenaTest, ARankThatIsNotThereIsRefused) {
  const auto writer = create();
  EXPECT_EQ(writer->wait_report(0, 1, kAtOnce).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->wait_report(3, 1, kAtOnce).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ArenaTest, ALeaderThatLeavesRemovesTheNameAndTellsReaders) {
  auto writer = create();
  const auto reader = open();
  seal(*writer, 1, 1.0F);
  writer->publish(1, "last");
  writer.reset();
  EXPECT_EQ(files("/memory"), 0U);
  EXPECT_TRUE(reader->wait_published(1, kAtOnce).ok()) << "a result that is there is still given";
  EXPECT_THAT(reader->anchor(), ::testing::Each(1.0F));
  const auto next = reader->wait_published(2, milliseconds(60'000));
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(next.status().message(), HasSubstr("has left"));
}

TEST_F(ArenaTest, ASecondLeaderIsRefusedByName) {
  const auto writer = create();
  const auto second = create_arena(spec_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kRefused);
  EXPECT_THAT(second.status().message(), HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_THAT(second.status().message(), HasSubstr("COLLAB_SITE"));
}

TEST_F(ArenaTest, EachSiteRunAndModelHasItsOwnArena) {
  const auto writer = create();
  ArenaSpec other = spec_;
  other.key.site = "rome";
  EXPECT_TRUE(create_arena(other).ok());
  other = spec_;
  other.key = {"gpt", "2paris", spec_.key.fingerprint};
  EXPECT_TRUE(create_arena(other).ok());
  other = spec_;
  other.key.fingerprint = {11, 23};
  EXPECT_TRUE(create_arena(other).ok());
}

TEST_F(ArenaTest, TooLittleSharedMemoryFallsBackToTheNextPlace) {
  spec_.places[0].limit_bytes = 4096;
  const auto writer = create();
  EXPECT_EQ(files("/memory"), 0U);
  EXPECT_EQ(files("/disk"), 1U);
  EXPECT_THAT(writer->describe(), HasSubstr("/disk/"));
  seal(*writer, 1, 3.0F);
  EXPECT_THAT(open()->anchor(), ::testing::Each(3.0F));
}

TEST_F(ArenaTest, TooLittleEverywhereNamesTheSizesAndTheRemedy) {
  spec_.elements = 100 << 20;  // 1.2 GiB with the outer state
  spec_.places[0].limit_bytes = 64 << 20;
  spec_.places[1].limit_bytes = 1 << 20;
  const auto writer = create_arena(spec_);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), StatusCode::kUnavailable);
  for (const char* part : {"needs 1.17 GiB", "/memory has 64.00 MiB", "/disk has 1.00 MiB", "--shm-size", "TMPDIR"}) {
    EXPECT_THAT(writer.status().message(), HasSubstr(part));
  }
  EXPECT_EQ(files("/memory") + files("/disk"), 0U);
}

TEST_F(ArenaTest, ARankWithAnotherModelIsToldBothFingerprints) {
  const auto writer = create();
  ArenaSpec other = spec_;
  other.key.fingerprint = {99, 99};
  const auto reader = open_arena(other, milliseconds(20));
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.status().code(), StatusCode::kRefused);
  EXPECT_THAT(reader.status().message(), HasSubstr(to_hex(spec_.key.fingerprint)));
  EXPECT_THAT(reader.status().message(), HasSubstr(to_hex(other.key.fingerprint)));
}

TEST_F(ArenaTest, ARankWithAnotherShapeIsToldBothSizes) {
  const auto writer = create();
  spec_.elements = 4000;
  const auto reader = open_arena(spec_, milliseconds(20));
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.status().code(), StatusCode::kRefused);
  EXPECT_THAT(reader.status().message(), HasSubstr("5000"));
  EXPECT_THAT(reader.status().message(), HasSubstr("4000"));
}

TEST_F(ArenaTest, WithoutALeaderTheWaitEndsAndSaysWhatItWaitedFor) {
  const auto reader = open_arena(spec_, milliseconds(20));
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(reader.status().message(), HasSubstr("the leader of site paris of run gpt2"));
}

TEST_F(ArenaTest, ARankWaitsWhileItsLeaderIsMakingTheArena) {
  const std::string path = root_ + "/memory/" + arena::file_name(spec_.key);
  Result<arena::BackingFile> making = arena::BackingFile::open(path, true);
  ASSERT_TRUE(making.ok() && making->hold()) << "as by a leader that reserves the room";
  auto opened = std::async(std::launch::async, [this] { return open_arena(spec_, milliseconds(1)); });
  EXPECT_EQ(opened.wait_for(milliseconds(200)), std::future_status::timeout) << "it has waited 1 ms and gone";
  const auto writer = create();
  const auto reader = opened.get();
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
}

TEST_F(ArenaTest, ARankDoesNotWaitForALeaderThatDiedWhileItMadeTheArena) {
  const std::string path = root_ + "/memory/" + arena::file_name(spec_.key);
  ASSERT_TRUE(arena::BackingFile::open(path, true).ok());
  EXPECT_THAT(open_arena(spec_, milliseconds(1)).status().message(), HasSubstr("is being made or removed"));
}

// Anyone may make files in /dev/shm, and can foretell what ours is called.
TEST_F(ArenaTest, AForeignFileUnderTheArenasNameIsIgnored) {
  const std::string name = [&] {
    const auto writer = create();
    return std::filesystem::directory_iterator(root_ + "/memory")->path().string();
  }();
  const auto make = [&](int kind) {
    switch (kind) {
      case 0: std::ofstream(name) << "a stranger's"; break;  // mode 0644: not ours alone
      case 1: std::filesystem::create_symlink(root_ + "/disk/elsewhere", name); break;
      case 2: return ::mkfifo(name.c_str(), 0666) == 0;
      default: return std::filesystem::create_directory(name);
    }
    return true;
  };
  for (int kind = 0; kind < 4; ++kind) {
    ASSERT_TRUE(make(kind));
    const auto writer = create();
    ASSERT_NE(writer, nullptr);
    EXPECT_EQ(files("/memory"), 2U) << kind;
    EXPECT_EQ(files("/disk"), 0U) << "nothing was made through the link";
    const SealedAnchor anchor = seal(*writer, 3, 0.5F);
    EXPECT_EQ(open()->sealed(), anchor) << "a rank finds it under its other name";
    const auto second = create_arena(spec_);
    ASSERT_FALSE(second.ok()) << "and so does a second leader";
    EXPECT_THAT(second.status().message(), HasSubstr("process " + std::to_string(::getpid())));
    std::filesystem::remove(name);
  }
}

TEST_F(ArenaTest, AHalfMadeFileIsReplacedAndCountsAsAnOrphan) {
  std::string path;
  {
    const auto writer = create();
    path = std::filesystem::directory_iterator(root_ + "/memory")->path();
    EXPECT_TRUE(find_orphan_arenas(spec_.places).empty()) << "its owner lives";
  }
  std::ofstream(path) << "not an arena";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const auto orphans = find_orphan_arenas(spec_.places);
  ASSERT_EQ(orphans.size(), 1U);
  EXPECT_EQ(orphans[0].path, path);
  const auto writer = create();
  EXPECT_EQ(writer->sealed(), std::nullopt);
  EXPECT_EQ(remove_orphan_arena(orphans[0]).code(), StatusCode::kRefused) << "it has an owner again";
}

TEST_F(ArenaTest, OneRankASiteUsesPrivateMemory) {
  spec_.shared = false;
  spec_.ranks = 1;
  const auto writer = create();
  const SealedAnchor as = seal(*writer, 3, 4.0F);
  EXPECT_EQ(writer->sealed(), as);
  EXPECT_THAT(writer->anchor(), ::testing::Each(4.0F));
  EXPECT_THAT(writer->outer(), ::testing::Each(-4.0F));
  EXPECT_EQ(files("/memory") + files("/disk"), 0U);
  EXPECT_FALSE(open_arena(spec_, kAtOnce).ok());
}

TEST_F(ArenaTest, AnOversizedPrivateArenaIsRefusedWithBothSizes) {
  spec_.shared = false;
  spec_.ranks = 1;
  spec_.elements = 25'000'000;
  spec_.outer_state = false;
  spec_.private_limit_bytes = 250'000'000;
  EXPECT_TRUE(create_arena(spec_).ok()) << "two slots of 100 MB each";
  spec_.training_copy = true;
  const Status refused = create_arena(spec_).status();
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("with a copy of the parameters (COLLAB_OVERLAP) needs 286."));
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("may use only 238.42 MiB"));
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("[arena.private-limit]"));
}

TEST_F(ArenaTest, ATrainingCopyIsAVectorOfItsOwn) {
  for (const bool outer_state : {true, false}) {
    spec_.outer_state = outer_state;
    spec_.training_copy = false;
    {
      const auto without = create();
      EXPECT_TRUE(without->training_copy().empty());
      EXPECT_TRUE(open()->training_copy().empty());
    }
    spec_.training_copy = true;
    const auto writer = create();
    const auto reader = open();
    std::ranges::fill(writer->training_copy(), 3.0F);
    seal(*writer, 1, 5.0F);
    seal(*writer, 2, 6.0F);
    ASSERT_EQ(reader->training_copy().size(), spec_.elements);
    EXPECT_TRUE(std::ranges::all_of(reader->training_copy(), [](float value) { return value == 3.0F; }));
    EXPECT_TRUE(std::ranges::all_of(reader->anchor(), [](float value) { return value == 6.0F; }));
    spec_.training_copy = false;
    EXPECT_THAT(open_arena(spec_, kAtOnce).status().message(), HasSubstr("COLLAB_OVERLAP"));
  }
}

// To lock the pages of a file on a disk would take the memory that was not there for it.
TEST_F(ArenaTest, SaysWhetherTheArenaIsInMemory) {
  for (const bool shared : {true, false}) {
    spec_.shared = shared;
    spec_.ranks = shared ? 3 : 1;
    spec_.places = {{"/dev/shm"}};
    const auto writer = create();
    EXPECT_TRUE(writer->in_memory());
    EXPECT_TRUE(!shared || open()->in_memory());
  }
  struct statfs info {};
  ASSERT_EQ(::statfs(root_.c_str(), &info), 0);
  if (info.f_type == TMPFS_MAGIC) return;
  spec_.shared = true;
  spec_.ranks = 3;
  spec_.places = {{root_ + "/disk"}};
  const auto writer = create();
  EXPECT_FALSE(writer->in_memory());
  EXPECT_FALSE(open()->in_memory());
}

TEST_F(ArenaTest, AnArenaWithoutOuterStateStillHoldsAnchors) {
  spec_.outer_state = false;
  const auto writer = create();
  EXPECT_TRUE(writer->outer().empty());
  const SealedAnchor as = seal(*writer, 1, 1.0F);
  EXPECT_EQ(open()->sealed(), as);
}

TEST_F(ArenaTest, SizesNoModelHasAreRefused) {
  spec_.elements = 0;
  EXPECT_EQ(create_arena(spec_).status().code(), StatusCode::kInvalidArgument);
  spec_.elements = (std::uint64_t{1} << 40) + 1;
  EXPECT_EQ(create_arena(spec_).status().code(), StatusCode::kInvalidArgument);
  spec_.elements = 10;
  spec_.ranks = 0;
  EXPECT_EQ(create_arena(spec_).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace collab
