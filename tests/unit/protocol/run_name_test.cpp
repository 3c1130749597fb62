#include "core/protocol/agreement/run_name.h"

#include <gtest/gtest.h>

namespace collab::protocol {
namespace {

using std::chrono::seconds;

constexpr seconds kNow{1'800'000'000};
constexpr std::uint64_t kAllBits = UINT64_MAX;

TEST(RunName, ClocksThatShowTheSameMakeTwoNames) {
  EXPECT_NE(run_name(kNow, 0x1234'5678'9ABC'DEF0), run_name(kNow, 0x8765'4321'9ABC'DEF0));
}

TEST(RunName, LaterIsLargerWhateverIsDrawn) {
  EXPECT_GT(run_name(kNow + seconds(1), 0), run_name(kNow, kAllBits));
  constexpr seconds kIn300Years{11'400'000'000};
  EXPECT_GT(run_name(kIn300Years, 0), run_name(kNow, kAllBits));
}

TEST(RunName, IsLargerThanItsPredecessorsThoughAClockIsBehind) {
  const RunId known = run_name(kNow, kAllBits);
  const RunId behind = run_name(kNow - seconds(2), 0x1234'5678'9ABC'DEF0);
  const RunId other = run_name(kNow - seconds(2), 0x8765'4321'9ABC'DEF0);
  EXPECT_GT(run_name_after(known, behind), known);
  EXPECT_NE(run_name_after(known, behind), run_name_after(known, other)) << "both may go on from it";
  const RunId ahead = run_name(kNow + seconds(1), 0);
  EXPECT_EQ(run_name_after(known, ahead), ahead);
  EXPECT_EQ(run_name_after(RunId{UINT64_MAX}, behind), behind) << "it is made up, and nothing is larger";
}

// Names of earlier releases are the microseconds alone.
TEST(RunName, IsLargerThanAnyOfTheTimeInMicroseconds) { EXPECT_GT(run_name(kNow, 0), RunId(1'800'000'000'000'000)); }

}  // namespace
}  // namespace collab::protocol
