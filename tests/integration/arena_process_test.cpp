// The arena between processes that are killed: what the survivors find, and how soon they know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "core/arena/arena.h"
#include "core/arena/layout.h"
#include "core/base/digest.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr milliseconds kWaitLimit{20'000};
constexpr milliseconds kNoticed{10'000};  // half of that limit: a dead partner is noticed within about a second

// A forked process that runs `body` and exits with its result; it can tell us one byte and hold until killed.
class Child {
 public:
  explicit Child(const std::function<int(Child&)>& body) {
    if (::pipe(pipe_) != 0) ADD_FAILURE() << "no pipe";
    pid_ = ::fork();
    if (pid_ == 0) ::_exit(body(*this));
  }
  ~Child() {
    kill();
    reap();
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // In the child.
  void say_ready() const {
    if (::write(pipe_[1], "r", 1) != 1) ::_exit(99);
  }
  [[noreturn]] static void hold() {
    while (true) ::pause();
  }
  // In the parent.
  void wait_ready() const {
    char byte = 0;
    ASSERT_EQ(::read(pipe_[0], &byte, 1), 1);
  }
  void kill() const {
    if (!reaped_) ::kill(pid_, SIGKILL);
  }
  int reap() {
    if (!reaped_) ::waitpid(pid_, &status_, 0);
    reaped_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
  int status_ = 0;
  bool reaped_ = false;
};

class ArenaProcessTest : public ::testing::Test {
 protected:
  ArenaProcessTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = ::testing::TempDir() + "collab-arena-" + std::to_string(::getpid()) + "-" + info->name();
    std::filesystem::create_directories(root_);
    spec_.places = {{root_}};
    spec_.key = {"gpt2", "paris", {11, 22}};
    spec_.elements = 20'000;
    spec_.outer_state = true;
    spec_.ranks = 3;
  }
  ~ArenaProcessTest() override { std::filesystem::remove_all(root_); }

  // What goes with the anchor of a round: of a length and content that tell the round.
  static std::vector<std::byte> attached_to(std::uint64_t round) {
    return std::vector<std::byte>(1000 + round % 50'000, static_cast<std::byte>('a' + round % 26));
  }
  static void seal(ArenaWriter& writer, std::uint64_t round, float value) {
    writer.begin_outer_update();
    std::ranges::fill(writer.scratch(), value);
    std::ranges::fill(writer.outer(), -value);
    const std::span<float> outer = writer.outer();
    writer.seal(
        {RunId{7}, RoundId{round},
         digest_of_state(digest_of_vector(writer.scratch()), outer.empty() ? Digest{} : digest_of_vector(outer)),
         attached_to(round)});
  }

  // A leader that seals two rounds, does `then`, and is killed there.
  void lead_and_die(const std::function<void(ArenaWriter&)>& then) {
    Child child([&](Child& self) {
      auto writer = create_arena(spec_);
      if (!writer.ok()) return 1;
      seal(**writer, 1, 1.0F);
      seal(**writer, 2, 2.0F);
      then(**writer);
      self.say_ready();
      Child::hold();
    });
    child.wait_ready();
    child.kill();
    EXPECT_EQ(child.reap(), -SIGKILL);
  }

  // What lies there of a leader in another container, of which pids tell nothing.
  void move_owner_to_another_container() const {
    const std::string path = std::filesystem::directory_iterator(root_)->path().string();
    const std::uint64_t elsewhere = 1;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offsetof(arena::Description, owner) + offsetof(arena::ProcessIdentity, pid_namespace));
    file.write(reinterpret_cast<const char*>(&elsewhere), sizeof elsewhere);
  }

  std::string root_;
  ArenaSpec spec_;
};

TEST_F(ArenaProcessTest, AProcessOfAnotherJobStartsAfresh) {
  lead_and_die([](ArenaWriter&) {});
  spec_.job = {1, 2};
  auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  EXPECT_EQ((*writer)->sealed(), std::nullopt);
}

TEST_F(ArenaProcessTest, ALeaderKilledWhileWritingScratchLeavesTheSealedAnchor) {
  lead_and_die([](ArenaWriter& writer) { std::ranges::fill(writer.scratch().first(7'000), 99.0F); });
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  ASSERT_TRUE((*writer)->sealed().has_value());
  EXPECT_EQ((*writer)->sealed()->round, RoundId{2});
  EXPECT_EQ((*writer)->sealed()->run, RunId{7});
  EXPECT_THAT((*writer)->anchor(), ::testing::Each(2.0F));
  EXPECT_THAT((*writer)->outer(), ::testing::Each(-2.0F));
  seal(**writer, 3, 3.0F);
  const auto reader = open_arena(spec_, kWaitLimit);
  ASSERT_TRUE(reader.ok());
  EXPECT_THAT((*reader)->anchor(), ::testing::Each(3.0F));
}

TEST_F(ArenaProcessTest, AnAttachmentOutlivesTheLeaderWithItsAnchor) {
  lead_and_die([](ArenaWriter&) {});
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok() && (*writer)->sealed().has_value());
  EXPECT_EQ((*writer)->sealed()->round, RoundId{2});
  EXPECT_EQ((*writer)->sealed()->attached, attached_to(2));
}

TEST_F(ArenaProcessTest, AnAnchorWithADamagedAttachmentIsIgnored) {
  spec_.outer_state = false;
  lead_and_die([](ArenaWriter&) {});
  const std::string path = std::filesystem::directory_iterator(root_)->path().string();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string start(300'000, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  file.clear();
  const std::size_t at = start.find(std::string(1002, static_cast<char>('a' + 2)));
  ASSERT_NE(at, std::string::npos);
  file.seekp(static_cast<std::streamoff>(at + 500));
  file.put('!');
  file.close();
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok() && (*writer)->sealed().has_value());
  EXPECT_EQ((*writer)->sealed()->round, RoundId{1});
  EXPECT_EQ((*writer)->sealed()->attached, attached_to(1));
}

TEST_F(ArenaProcessTest, ALeaderKilledDuringASealLeavesAnAnchorWithItsOwnAttachment) {
  spec_.outer_state = false;
  spec_.elements = 16;
  for (std::uint64_t life = 0; life < 20; ++life) {
    Child child([&](Child& self) {
      auto writer = create_arena(spec_);
      if (!writer.ok()) return 1;
      self.say_ready();
      for (std::uint64_t round = 1;; ++round) seal(**writer, round, static_cast<float>(round));
    });
    child.wait_ready();
    {
      const auto reader = open_arena(spec_, kWaitLimit);
      ASSERT_TRUE(reader.ok()) << reader.status().to_string();
      const auto has_come = [&] { return (*reader)->sealed().value_or(SealedAnchor{}).round >= RoundId{50 + life}; };
      while (!has_come()) std::this_thread::yield();
    }
    child.kill();
    EXPECT_EQ(child.reap(), -SIGKILL);
    const auto writer = create_arena(spec_);
    ASSERT_TRUE(writer.ok() && (*writer)->sealed().has_value());
    const SealedAnchor sealed = *(*writer)->sealed();
    EXPECT_GE(sealed.round, RoundId{49 + life});
    EXPECT_EQ(sealed.attached, attached_to(sealed.round.value)) << "round " << sealed.round.value;
  }
}

TEST_F(ArenaProcessTest, ANewerSlotThatIsDamagedLeavesTheOlderOne) {
  spec_.outer_state = false;  // with it, the older anchor has no outer state to go with
  lead_and_die([](ArenaWriter& writer) { const_cast<float&>(writer.anchor()[5]) = 0.0F; });
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->sealed().has_value());
  EXPECT_EQ((*writer)->sealed()->round, RoundId{1});
  EXPECT_THAT((*writer)->anchor(), ::testing::Each(1.0F));
}

TEST_F(ArenaProcessTest, AnOuterStateChangedHalfwayIsNotTaken) {
  lead_and_die([](ArenaWriter& writer) {
    writer.begin_outer_update();
    std::ranges::fill(writer.outer().first(7'000), 99.0F);
  });
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ((*writer)->sealed(), std::nullopt);
  EXPECT_THAT((*writer)->outer(), ::testing::Each(0.0F));
}

TEST_F(ArenaProcessTest, ADeadLeadersArenaOfAnotherSizeIsReplaced) {
  lead_and_die([](ArenaWriter&) {});
  spec_.outer_state = false;
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ((*writer)->sealed(), std::nullopt);
  EXPECT_TRUE((*writer)->outer().empty());
}

TEST_F(ArenaProcessTest, ALeaderThatIsAliveIsNotReplaced) {
  Child leader([&](Child& self) {
    const auto writer = create_arena(spec_);
    if (!writer.ok()) return 1;
    self.say_ready();
    Child::hold();
  });
  leader.wait_ready();
  const auto writer = create_arena(spec_);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), StatusCode::kRefused);
  EXPECT_THAT(writer.status().message(), HasSubstr("process " + std::to_string(leader.pid())));
}

TEST_F(ArenaProcessTest, ARankWakesWhenTheLeaderPublishesAndReadsTheAnchor) {
  Child rank([&](Child&) {
    const auto reader = open_arena(spec_, kWaitLimit);
    if (!reader.ok()) return 1;
    for (std::uint64_t call = 1; call <= 200; ++call) {
      (*reader)->report(1, {.call = call, .digest = {call, 0}, .samples = 8});
      const auto result = (*reader)->wait_published(call, kWaitLimit);
      if (!result.ok()) return 2;
      const float value = static_cast<float>(call);
      if (!std::ranges::all_of((*reader)->anchor(), [value](float x) { return x == value; })) return 3;
    }
    return 0;
  });
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok());
  for (std::uint64_t call = 1; call <= 200; ++call) {
    const auto report = (*writer)->wait_report(1, call, kWaitLimit);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->digest.lo, call);
    seal(**writer, call, static_cast<float>(call));
    (*writer)->publish(call, "");
  }
  EXPECT_EQ(rank.reap(), 0);
}

TEST_F(ArenaProcessTest, ARankNoticesThatItsLeaderWasKilled) {
  Child leader([&](Child& self) {
    const auto writer = create_arena(spec_);
    if (!writer.ok()) return 1;
    self.say_ready();
    Child::hold();
  });
  leader.wait_ready();
  const auto reader = open_arena(spec_, kWaitLimit);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  leader.kill();  // not reaped: a zombie is dead too
  const auto killed = steady_clock::now();
  const auto result = (*reader)->wait_published(1, kWaitLimit);
  EXPECT_LT(steady_clock::now() - killed, kNoticed);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(result.status().message(), HasSubstr("pid " + std::to_string(leader.pid())));
  EXPECT_THAT(result.status().message(), HasSubstr("is gone"));
}

TEST_F(ArenaProcessTest, ARankOfADeadLeaderIsNotMistakenForTheNewLeadersRank) {
  Child first([&](Child& self) {
    const auto writer = create_arena(spec_);
    if (!writer.ok()) return 1;
    seal(**writer, 1, 1.0F);
    self.say_ready();
    Child::hold();
  });
  first.wait_ready();
  const auto reader = open_arena(spec_, kWaitLimit);
  ASSERT_TRUE(reader.ok());
  first.kill();
  first.reap();
  const auto second = create_arena(spec_);
  ASSERT_TRUE(second.ok());
  (*second)->publish(2, "of the new leader");
  const auto result = (*reader)->wait_published(2, kWaitLimit);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
}

TEST_F(ArenaProcessTest, ALeaderNoticesThatARankWasKilled) {
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok());
  Child rank([&](Child& self) {
    const auto reader = open_arena(spec_, kWaitLimit);
    if (!reader.ok()) return 1;
    (*reader)->report(2, {.call = 1, .digest = {}, .samples = 1});
    self.say_ready();
    Child::hold();
  });
  rank.wait_ready();
  ASSERT_TRUE((*writer)->wait_report(2, 1, kWaitLimit).ok());
  rank.kill();
  const auto killed = steady_clock::now();
  const auto report = (*writer)->wait_report(2, 2, kWaitLimit);
  EXPECT_LT(steady_clock::now() - killed, kNoticed);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(report.status().message(), HasSubstr("rank 2 of site paris (pid " + std::to_string(rank.pid())));
}

TEST_F(ArenaProcessTest, OrphansAreFoundAndRemoved) {
  lead_and_die([](ArenaWriter&) {});
  const auto orphans = find_orphan_arenas(spec_.places);
  ASSERT_EQ(orphans.size(), 1U);
  EXPECT_THAT(orphans[0].why, HasSubstr("is gone"));
  EXPECT_GT(orphans[0].bytes, 3 * spec_.elements * sizeof(float));
  EXPECT_TRUE(remove_orphan_arena(orphans[0]).ok());
  EXPECT_TRUE(find_orphan_arenas(spec_.places).empty());
  EXPECT_TRUE(remove_orphan_arena(orphans[0]).ok()) << "removing what is gone is no error";
}

TEST_F(ArenaProcessTest, ALeaderKilledInAnotherContainerLeavesItsAnchor) {
  lead_and_die([this](ArenaWriter&) { move_owner_to_another_container(); });
  const auto orphans = find_orphan_arenas(spec_.places);
  ASSERT_EQ(orphans.size(), 1U);
  EXPECT_THAT(orphans[0].why, HasSubstr("is gone"));
  EXPECT_THAT(open_arena(spec_, milliseconds(1)).status().message(), HasSubstr("which is gone"));
  const auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  ASSERT_TRUE((*writer)->sealed().has_value());
  EXPECT_EQ((*writer)->sealed()->round, RoundId{2});
}

TEST_F(ArenaProcessTest, ALeaderAliveInAnotherContainerIsNotReplaced) {
  Child leader([&](Child& self) {
    const auto writer = create_arena(spec_);
    if (!writer.ok()) return 1;
    move_owner_to_another_container();
    const Child worker([](Child&) { return 0; });  // one that shared the file would let go of it for both
    self.say_ready();
    Child::hold();
  });
  leader.wait_ready();
  EXPECT_TRUE(find_orphan_arenas(spec_.places).empty());
  const auto writer = create_arena(spec_);
  EXPECT_EQ(writer.status().code(), StatusCode::kRefused);
  EXPECT_THAT(writer.status().message(), HasSubstr("in another container"));
}

TEST_F(ArenaProcessTest, AWorkerThatOutlivesItsLeaderDoesNotKeepTheArena) {
  int worker[2];
  int begun[2];
  ASSERT_EQ(::pipe(worker), 0);
  ASSERT_EQ(::pipe(begun), 0);
  lead_and_die([&](ArenaWriter&) {
    move_owner_to_another_container();
    char byte = 0;
    if (::fork() != 0) {
      EXPECT_EQ(::read(begun[0], &byte, 1), 1);  // it has closed what a worker does not keep
      return;
    }
    ::close(worker[1]);
    if (::write(begun[1], &byte, 1) != 1) ::_exit(1);
    ::_exit(static_cast<int>(::read(worker[0], &byte, 1)));  // until we have looked
  });
  EXPECT_TRUE(create_arena(spec_).ok());
  for (const int end : {worker[0], worker[1], begun[0], begun[1]}) ::close(end);
}

TEST_F(ArenaProcessTest, AForkedCopyOfTheLeaderLeavesTheArenaAlone) {
  auto writer = create_arena(spec_);
  ASSERT_TRUE(writer.ok());
  Child worker([&](Child&) {  // a DataLoader worker that runs destructors at its end
    writer->reset();
    return 0;
  });
  EXPECT_EQ(worker.reap(), 0);
  seal(**writer, 1, 1.0F);
  const auto reader = open_arena(spec_, kWaitLimit);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_THAT((*reader)->anchor(), ::testing::Each(1.0F));
}

}  // namespace
}  // namespace collab
