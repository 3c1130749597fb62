#include "core/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

namespace collab {
namespace {

using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kNow{0};
constexpr milliseconds kWaitLimit{10'000};

class Log : public ::testing::Test {
 protected:
  ~Log() override {
    ::testing::internal::CaptureStderr();
    close_log_queue(kNow);
    ::testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kInfo);
    set_log_source("", std::nullopt);
  }
  static std::string printed(void (*say)(std::string_view), std::string_view text) {
    ::testing::internal::CaptureStderr();
    say(text);
    return ::testing::internal::GetCapturedStderr();
  }
  // Without the time, which has 24 characters and a blank.
  static std::string said(void (*say)(std::string_view), std::string_view text) {
    const std::string line = printed(say, text);
    return line.empty() ? line : line.substr(25);
  }
  static std::vector<std::string> taken() {
    std::vector<std::string> texts;
    while (const std::optional<LogRecord> record = take_log_record(kNow)) texts.push_back(record->text);
    return texts;
  }
};

TEST_F(Log, NamesTheSiteTheRankAndTheLevel) {
  set_log_level(LogLevel::kDebug);
  set_log_source("paris", 3);
  EXPECT_EQ(said(log_debug, "a detail"), "DEBUG collab[paris/3]: a detail\n");
  EXPECT_EQ(said(log_info, "round 3 committed"), "INFO collab[paris/3]: round 3 committed\n");
  set_log_source("paris", std::nullopt);
  EXPECT_EQ(said(log_warning, "slow link"), "WARNING collab[paris]: slow link\n");
  EXPECT_EQ(said(log_error, "no link"), "ERROR collab[paris]: no link\n");
  set_log_source("", std::nullopt);
  EXPECT_EQ(said(log_info, "hello"), "INFO collab: hello\n");
}

TEST_F(Log, TimeIsUtcWithMilliseconds) {
  const std::chrono::system_clock::time_point time{std::chrono::seconds(1'795'557'154) + milliseconds(7)};
  EXPECT_EQ(log_line({LogLevel::kInfo, time, "", std::nullopt, "x"}), "2026-11-24T21:52:34.007Z INFO collab: x");
  EXPECT_THAT(printed(log_info, "x"),
              ContainsRegex("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z INFO"));
}

TEST_F(Log, AMessageIsOneLineAndNeverAFormat) {
  EXPECT_EQ(said(log_info, "first\nsecond {} %s"), "INFO collab: first | second {} %s\n");
}

TEST_F(Log, ControlCharactersAreShown) {
  EXPECT_EQ(said(log_info, "site \x1b[2J\r joins from \xE2\x80\xAE"),
            "INFO collab: site \\x1b[2J\\x0d joins from \\u202e\n");
}

TEST_F(Log, PrintsNothingBelowTheLevel) {
  set_log_level(LogLevel::kWarning);
  EXPECT_EQ(printed(log_debug, "x"), "");
  EXPECT_EQ(printed(log_info, "x"), "");
  EXPECT_NE(printed(log_warning, "x"), "");
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(printed(log_error, "x"), "");
  EXPECT_FALSE(log_enabled(LogLevel::kOff));
}

TEST_F(Log, LevelsHaveNames) {
  EXPECT_EQ(*log_level_from_name("warning"), LogLevel::kWarning);
  EXPECT_EQ(name_of(LogLevel::kWarning), "warning");
  EXPECT_EQ(*log_level_from_name("off"), LogLevel::kOff);
  EXPECT_NE(log_level_from_name("loud").status().message().find("\"loud\""), std::string::npos);
}

TEST_F(Log, ASessionsSuggestionDoesNotOverrideTheProgramsSettings) {
  set_log_source("paris", 3);
  suggest_log(LogLevel::kInfo, "paris");
  EXPECT_EQ(said(log_info, "x"), "INFO collab[paris/3]: x\n");
  suggest_log(LogLevel::kWarning, "tokyo");
  EXPECT_EQ(said(log_warning, "x"), "WARNING collab[tokyo]: x\n");
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  open_log_queue();
  suggest_log(LogLevel::kDebug, "tokyo");
  EXPECT_FALSE(log_enabled(LogLevel::kDebug)) << "who opened the queue sets the level";
}

TEST_F(Log, RecordsWaitInOrder) {
  set_log_source("paris", 1);
  open_log_queue();
  EXPECT_EQ(printed(log_info, "first"), "");
  log_warning("second\nline");
  const std::optional<LogRecord> first = take_log_record(kNow);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->level, LogLevel::kInfo);
  EXPECT_EQ(first->site, "paris");
  EXPECT_EQ(first->rank, 1U);
  EXPECT_EQ(first->text, "first");
  EXPECT_THAT(taken(), ElementsAre("second | line"));
}

TEST_F(Log, RecordsTheQueueCannotHoldAreCountedAndReported) {
  open_log_queue(2);
  for (const char* text : {"a", "b", "c", "d", "e"}) log_info(text);
  const std::vector<std::string> texts = taken();
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_EQ(texts[1], "b");
  EXPECT_THAT(texts[2], ::testing::AllOf(HasSubstr("3 lines"), HasSubstr("[log.overflow]")));
  log_info("f");
  EXPECT_THAT(taken(), ElementsAre("f")) << "told once";
}

TEST_F(Log, ManyThreadsLoseNothingUncounted) {
  constexpr int kThreads = 4, kEach = 2500;
  open_log_queue(64);
  std::vector<std::vector<int>> seen(kThreads);
  std::uint64_t left_out = 0;
  std::thread taker([&] {
    while (true) {
      const std::optional<LogRecord> record = take_log_record(kWaitLimit);
      if (!record) return;
      if (record->text.find("[log.overflow]") != std::string::npos) {
        left_out += std::stoull(record->text);
      } else {
        const std::size_t blank = record->text.find(' ');
        seen[std::stoul(record->text.substr(0, blank))].push_back(std::stoi(record->text.substr(blank)));
      }
    }
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread] {
      for (int i = 0; i < kEach; ++i) log_info(std::to_string(thread) + " " + std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  close_log_queue(kWaitLimit);
  taker.join();
  std::uint64_t came = 0;
  for (const std::vector<int>& of_thread : seen) {
    came += of_thread.size();
    EXPECT_TRUE(std::is_sorted(of_thread.begin(), of_thread.end()));
  }
  EXPECT_EQ(came + left_out, kThreads * kEach);
}

TEST_F(Log, FlushWaitsUntilTheReaderReturns) {
  open_log_queue();
  EXPECT_TRUE(flush_log(kNow)) << "nothing waits";
  log_info("x");
  EXPECT_FALSE(flush_log(kNow));
  ASSERT_TRUE(take_log_record(kNow));
  EXPECT_FALSE(flush_log(kNow)) << "taken, and not yet where it belongs";
  EXPECT_FALSE(take_log_record(kNow));
  EXPECT_TRUE(flush_log(kNow));
}

TEST_F(Log, RemainingRecordsGoToStderrAtTheEnd) {
  open_log_queue();
  log_info("left");
  ::testing::internal::CaptureStderr();
  close_log_queue(kNow);
  log_info("later");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ContainsRegex("collab: left\n.*collab: later\n"));
  EXPECT_FALSE(log_queue_open());
  EXPECT_FALSE(take_log_record(kWaitLimit)) << "returns at once";
}

TEST_F(Log, AForkedChildWritesToStderr) {
  open_log_queue();
  log_info("the parent's");
  ::testing::internal::CaptureStderr();
  const pid_t child = fork();
  if (child == 0) {
    log_info("the child's");
    _exit(log_queue_open() ? 1 : 0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("the child's"));
  EXPECT_THAT(told, ::testing::Not(HasSubstr("the parent's")));
  EXPECT_THAT(taken(), ElementsAre("the parent's"));
}

TEST(LogDeathTest, WaitingRecordsAreShownWhenTheProcessAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto say_and = [](void (*end)()) {
    open_log_queue();
    log_error("the last words");
    end();
  };
  EXPECT_DEATH(say_and([] { std::abort(); }), "ERROR collab: the last words");
  EXPECT_DEATH(say_and([] { COLLAB_CHECK(false, "no way on"); }),
               "the last words\n.* ERROR collab: broken invariant.*no way on");
}

}  // namespace
}  // namespace collab
