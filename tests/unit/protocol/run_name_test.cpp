#include "core/protocol/agreement/run_name.h"

#include <gtest/gtest.h>

namespace collab::protocol {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNow{1'800'000'000'000};
constexpr std::uint64_t kAllBits = UINT64_MAX;

TEST(RunName, ClocksThatShowTheSameMakeTwoNames) {
  EXPECT_NE(run_name(kNow, 0x1234'5678'9ABC'DEF0), run_name(kNow, 0x8765'4321'9ABC'DEF0));
}

TEST(RunName, LaterIsLargerWhateverIsDrawn) {
  EXPECT_GT(run_name(kNow + milliseconds(1), 0), run_name(kNow, kAllBits));
  constexpr milliseconds kIn300Years{11'400'000'000'000};
  EXPECT_GT(run_name(kIn300Years, 0), run_name(kNow, kAllBits));
}

// Names of earlier releases are the microseconds alone.
TEST(RunName, IsLargerThanAnyOfTheTimeInMicroseconds) { EXPECT_GT(run_name(kNow, 0), RunId(1'800'000'000'000'000)); }

}  // namespace
}  // namespace collab::protocol
