// A wait is told about at 10, 30 and 60 s, then every minute; never while nobody waits.
#include "core/runtime/wait_notices.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart{seconds(1000)};

TEST(WaitNotices, NothingIsDueWhileNobodyWaits) {
  WaitNotices notices;
  Duration waited{0};
  EXPECT_EQ(notices.next(), kNever);
  EXPECT_FALSE(notices.due(kStart + seconds(500), waited));
}

TEST(WaitNotices, ComeAtTheirTimesAndOnceEach) {
  WaitNotices notices;
  notices.begin(kStart);
  Duration waited{0};
  EXPECT_FALSE(notices.due(kStart + seconds(9), waited));
  for (const int at : {10, 30, 60, 120, 180}) {
    EXPECT_EQ(notices.next(), kStart + seconds(at));
    ASSERT_TRUE(notices.due(kStart + seconds(at) + seconds(1), waited));
    EXPECT_EQ(waited, seconds(at) + seconds(1));
    EXPECT_FALSE(notices.due(kStart + seconds(at) + seconds(2), waited));
  }
}

TEST(WaitNotices, ALateLookIsToldOnceAndTheNextComesInTime) {
  WaitNotices notices;
  notices.begin(kStart);
  Duration waited{0};
  ASSERT_TRUE(notices.due(kStart + seconds(150), waited));  // the process was stopped meanwhile
  EXPECT_EQ(notices.next(), kStart + seconds(180));
}

TEST(WaitNotices, ANewWaitBeginsAnew) {
  WaitNotices notices;
  notices.begin(kStart);
  notices.end();
  EXPECT_EQ(notices.next(), kNever);
  notices.begin(kStart + seconds(100));
  EXPECT_EQ(notices.next(), kStart + seconds(110));
}

}  // namespace
}  // namespace collab
