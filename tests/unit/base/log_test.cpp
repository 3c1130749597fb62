#include "core/base/log.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

class Log : public ::testing::Test {
 protected:
  ~Log() override { set_log(LogLevel::kInfo, ""); }
  static std::string printed(void (*say)(std::string_view), std::string_view text) {
    ::testing::internal::CaptureStderr();
    say(text);
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, NamesTheSiteAndTheImportance) {
  set_log(LogLevel::kDebug, "paris");
  EXPECT_EQ(printed(log_info, "round 3 committed"), "collab[paris]: round 3 committed\n");
  EXPECT_EQ(printed(log_warning, "slow link"), "collab[paris]: warning: slow link\n");
  EXPECT_EQ(printed(log_error, "no link"), "collab[paris]: error: no link\n");
  set_log(LogLevel::kInfo, "");
  EXPECT_EQ(printed(log_info, "hello"), "collab: hello\n");
}

TEST_F(Log, AMessageIsOneLineAndNeverAFormat) {
  EXPECT_EQ(printed(log_info, "first\nsecond {} %s"), "collab: first | second {} %s\n");
}

TEST_F(Log, WhatATerminalObeysIsShown) {
  EXPECT_EQ(printed(log_info, "site \x1b[2J\r joins from \xE2\x80\xAE"),
            "collab: site \\x1b[2J\\x0d joins from \\u202e\n");
}

TEST_F(Log, PrintsNothingBelowTheLevel) {
  set_log(LogLevel::kWarning, "a");
  EXPECT_EQ(printed(log_debug, "x"), "");
  EXPECT_EQ(printed(log_info, "x"), "");
  EXPECT_NE(printed(log_warning, "x"), "");
  set_log(LogLevel::kOff, "a");
  EXPECT_EQ(printed(log_error, "x"), "");
  EXPECT_FALSE(log_enabled(LogLevel::kOff));
}

TEST_F(Log, LevelsHaveNames) {
  EXPECT_EQ(*log_level_from_name("warning"), LogLevel::kWarning);
  EXPECT_EQ(*log_level_from_name("off"), LogLevel::kOff);
  EXPECT_NE(log_level_from_name("loud").status().message().find("\"loud\""), std::string::npos);
}

}  // namespace
}  // namespace collab
