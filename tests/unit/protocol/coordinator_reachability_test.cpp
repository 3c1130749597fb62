// Which sites can be dialled, and what follows if none can.
#include <gmock/gmock.h>

#include "core/protocol/formatting.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> notices(const CoordinatorHarness::Actions& actions, std::uint64_t link) {
  std::vector<std::string> texts;
  for (const auto& [to, notice] : sent<wire::Notice>(actions)) {
    if (to == LinkId{link}) texts.push_back(notice.text);
  }
  return texts;
}

class CoordinatorReachability : public ThreeSites {
 protected:
  CoordinatorHarness::Actions undialable(std::uint64_t link) {
    return c.step(Undialable{LinkId{link}, "connection timed out"});
  }
  static std::set<SiteId> owners_of(const wire::StartAttempt& start) {
    std::set<SiteId> owners;
    for (const wire::Slice& slice : start.slices) owners.insert(slice.owner);
    return owners;
  }
};

TEST_F(CoordinatorReachability, ASiteThatCannotBeDialledOwnsNothing) {
  wire::Join hidden = join_of("oslo", 3);
  hidden.address.clear();
  EXPECT_TRUE(all<ProbeAddress>(c.hear(8, hidden)).empty());
  static_cast<void>(c.close(8));
  const auto probes = all<ProbeAddress>(c.hear(9, join_of("rome", 3)));
  ASSERT_EQ(probes.size(), 1U);
  EXPECT_EQ(probes[0].link, LinkId{9});
  EXPECT_EQ(probes[0].address, "rome:1");
  static_cast<void>(c.close(9));

  EXPECT_TRUE(c.step(Undialable{LinkId{9}, "late"}).empty());
  const auto actions = undialable(2);
  EXPECT_THAT(notes(actions), HasSubstr("tokyo cannot be dialled at tokyo:1 (connection timed out)"));
  EXPECT_EQ(sent<wire::Notice>(actions).at(0).first, LinkId{2});
  EXPECT_EQ(sent<wire::Notice>(actions).at(0).second.event, kDialOut);
  EXPECT_EQ(owners_of(c.start(1, 3)), (std::set{SiteId{0}, SiteId{2}}));
}

TEST_F(CoordinatorReachability, AnotherOwnsAllIfTheOnlyOwnerCannotDoItsPart) {
  for (const std::uint64_t link : {2, 3}) static_cast<void>(undialable(link));
  wire::StartAttempt start = c.start(1, 3);
  for (int failures = 0; failures < 4; ++failures) {
    EXPECT_EQ(owners_of(start), (std::set{SiteId{0}}));
    start = reformed(c.hear(1, wire::PeerUnreachable{RoundId{1}, start.attempt, SiteId{0}, "the sum overflows"}));
  }
  EXPECT_EQ(start.participants.size(), 3U);
  EXPECT_EQ(owners_of(start), (std::set{SiteId{1}, SiteId{2}}));
}

// A coordinator far from all of them knows little of who reaches whom.
TEST_F(CoordinatorReachability, AllOwnIfNoSiteIsSureToBeDialled) {
  for (const std::uint64_t link : {1, 2, 3}) static_cast<void>(undialable(link));
  EXPECT_EQ(c.start(1, 3).slices.size(), 3U);
}

TEST_F(CoordinatorReachability, TwoOwnersWithoutAWayBetweenThemAreOwnersNoLonger) {
  EXPECT_EQ(owners_of(c.start(1, 3)).size(), 3U);
  EXPECT_TRUE(sent<wire::StartAttempt>(undialable(2)).empty()) << "it reaches the others";
  const auto actions = undialable(3);
  EXPECT_EQ(owners_of(reformed(actions)), std::set{SiteId{0}});
  EXPECT_THAT(notes(actions), HasSubstr("round 1: none of tokyo, lima can be dialled; another attempt is formed"));
}

TEST_F(CoordinatorReachability, AnExchangeThatHasWorkedOutIsNotBegunAgain) {
  const wire::StartAttempt start = c.start(1, 3);
  static_cast<void>(undialable(2));
  static_cast<void>(c.hear(1, CoordinatorHarness::done(start)));
  EXPECT_TRUE(sent<wire::StartAttempt>(undialable(3)).empty());
}

TEST_F(CoordinatorReachability, TheAttemptStaysIfNoOwnerWouldBeSure) {
  static_cast<void>(c.start(1, 3));
  static_cast<void>(undialable(2));
  static_cast<void>(c.step(Undialable{LinkId{3}, "connection timed out"}));  // formed again
  EXPECT_TRUE(sent<wire::StartAttempt>(undialable(1)).empty());
}

TEST_F(CoordinatorReachability, ReportsOnceThatNoSiteCanBeDialled) {
  EXPECT_EQ(notices(undialable(1), 1).size(), 1U);
  EXPECT_EQ(notices(undialable(2), 1).size(), 0U);
  const auto actions = undialable(3);
  ASSERT_EQ(notices(actions, 1).size(), 1U);
  EXPECT_THAT(notices(actions, 1)[0], HasSubstr("none of paris, tokyo, lima can be dialled: unless they reach each "
                                                "other anyway, run `collab helper` on a machine"));
  EXPECT_THAT(notes(actions), HasSubstr("none of paris, tokyo, lima can be dialled"));
  EXPECT_EQ(notices(undialable(3), 1).size(), 0U);
}

TEST_F(CoordinatorReachability, AHelperThatGoesIsMissed) {
  wire::Join helper = join_of("helper");
  helper.helper = true;
  helper.model.clear();
  static_cast<void>(c.hear(4, helper));
  for (const std::uint64_t link : {1, 2, 3}) EXPECT_THAT(notes(undialable(link)), Not(HasSubstr("none of")));
  const auto actions = c.hear(4, wire::Leave{"its budget is spent"});
  ASSERT_EQ(notices(actions, 2).size(), 1U);
  EXPECT_THAT(notices(actions, 2)[0], HasSubstr("helper has gone, and none of paris, tokyo, lima can be dialled"));
}

TEST_F(CoordinatorReachability, ASiteThatLeavesAtTheEndIsNotMissed) {
  for (const std::uint64_t link : {1, 2}) static_cast<void>(undialable(link));
  EXPECT_TRUE(sent<wire::Notice>(c.hear(3, wire::Leave{"trained to the end"})).empty());
}

TEST_F(CoordinatorReachability, ASiteThatIsLostIsMissed) {
  for (const std::uint64_t link : {1, 2}) static_cast<void>(undialable(link));
  EXPECT_THAT(notes(c.close(3)), HasSubstr("lima has gone, and none of paris, tokyo can be dialled"));
}

// It may reach them all the same, so it is told at once whom to try.
TEST_F(CoordinatorReachability, AnUnverifiedJoinerTriesItsSources) {
  for (const std::uint64_t link : {1, 2, 3}) static_cast<void>(undialable(link));
  const auto installs = sent<wire::InstallAnchor>(c.hear(4, join_of("oslo")));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.sources.size(), 3U);
}

TEST_F(CoordinatorReachability, AJoinerIsSentToThoseItCanReach) {
  for (const std::uint64_t link : {1, 3}) static_cast<void>(undialable(link));
  wire::Join hidden = join_of("oslo");
  hidden.address.clear();
  const auto installs = sent<wire::InstallAnchor>(c.hear(4, hidden));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.sources, std::vector{SiteId{1}});
}

}  // namespace
}  // namespace collab::protocol
