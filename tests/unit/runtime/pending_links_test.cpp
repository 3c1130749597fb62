// Links that others have dialled, until it is clear what they want.
#include "core/runtime/pending_links.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace collab {
namespace {

using std::chrono::seconds;

class PendingLinksTest : public ::testing::Test {
 protected:
  std::vector<LinkId> come(std::uint64_t link, const std::string& peer, TimePoint when = {}) {
    return pending_links_.on_accepted(when, LinkId{link}, peer, is_known());
  }
  [[nodiscard]] std::function<bool(LinkId)> is_known() const {
    return [this](LinkId link) { return known_.contains(link.value); };
  }
  PendingLinks pending_links_{[] { return std::size_t{1} << 16; }};
  std::set<std::uint64_t> known_;
};

TEST_F(PendingLinksTest, ASilentLinkIsClosedAfterTenSeconds) {
  EXPECT_EQ(pending_links_.next_deadline(), kNever);
  EXPECT_TRUE(come(1, "10.0.0.1:5").empty());
  EXPECT_TRUE(come(2, "10.0.0.1:6", TimePoint(seconds(4))).empty());
  EXPECT_EQ(pending_links_.next_deadline(), TimePoint(seconds(10)));
  known_ = {2};
  EXPECT_EQ(pending_links_.due(TimePoint(seconds(10)), is_known()), std::vector{LinkId{1}});
  EXPECT_TRUE(pending_links_.due(TimePoint(seconds(20)), is_known()).empty());
  EXPECT_EQ(pending_links_.next_deadline(), kNever);
}

TEST_F(PendingLinksTest, AClosedLinkIsNotWaitedFor) {
  EXPECT_TRUE(come(1, "10.0.0.1:5").empty());
  pending_links_.closed(LinkId{1});
  EXPECT_EQ(pending_links_.next_deadline(), kNever);
}

TEST_F(PendingLinksTest, OneHostPushesOutItsOwnOldestLinks) {
  EXPECT_TRUE(come(1, "10.0.0.2:1").empty());
  for (std::uint64_t i = 0; i < PendingLinks::kMostOfHost; ++i) {
    EXPECT_TRUE(come(100 + i, "10.0.0.1:" + std::to_string(i), TimePoint(seconds(i))).empty());
  }
  EXPECT_EQ(come(500, "10.0.0.1:9", TimePoint(seconds(99))), std::vector{LinkId{100}});
}

TEST_F(PendingLinksTest, MembersTakeNoRoom) {
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_TRUE(come(i, "10.0.0.1:" + std::to_string(i)).empty());
    known_.insert(i);
  }
}

TEST_F(PendingLinksTest, TheTotalIsBounded) {
  std::size_t closed = 0;
  for (std::uint64_t i = 1; i <= 2 * PendingLinks::kMost; ++i) {
    closed += come(i, "10.0." + std::to_string(i % 100) + ".1:1").size();
  }
  EXPECT_EQ(closed, PendingLinks::kMost);
}

TEST(PendingLinks, ThereAreNoMoreThanAnEighthOfTheFiles) {
  PendingLinks pending_links{[] { return std::size_t{1024}; }};
  std::size_t closed = 0;
  for (std::uint64_t i = 1; i <= 200; ++i) {
    const std::string peer = "10.0." + std::to_string(i % 100) + ".1:1";
    closed += pending_links.on_accepted({}, LinkId{i}, peer, [](LinkId) { return false; }).size();
  }
  EXPECT_EQ(closed, 200U - 128U);
}

}  // namespace
}  // namespace collab
