// A member that says that it holds another anchor than the one it brought and was told to keep.
#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Actions = CoordinatorHarness::Actions;

const wire::AnchorInstalled kFarAhead{RunId{1ULL << 62U}, RoundId{1000}, kWrong};

// Two train; mallory says that it holds what they hold, and is told to keep it.
class AnotherAnchor : public testing::Test {
 protected:
  AnotherAnchor() {
    c.gather({"paris", "tokyo"});
    wire::Join helper = holding(join_of("mallory"), {RunId{7}, RoundId{0}, kRight});
    helper.helper = true;
    const auto told = sent<wire::InstallAnchor>(c.hear(3, helper));
    EXPECT_EQ(told.at(0).second.sources, std::vector{SiteId{2}});
  }
  void expect_commit(const wire::StartAttempt& start) {
    static_cast<void>(c.hear(1, CoordinatorHarness::done(start)));
    const auto commits = sent<wire::Commit>(c.hear(2, CoordinatorHarness::done(start)));
    ASSERT_EQ(commits.size(), 2U);
    EXPECT_EQ(commits[0].second.run, RunId{7});
    EXPECT_EQ(commits[0].second.round, start.round);
  }
  CoordinatorHarness c;
};

TEST_F(AnotherAnchor, DoesNotTakeTheirsFromThoseThatHoldIt) {
  const auto actions = c.hear(3, kFarAhead);
  EXPECT_THAT(notes(actions), HasSubstr("it takes the latter from the others [join.anchor-changed]"));
  const auto told = sent<wire::InstallAnchor>(actions);
  ASSERT_EQ(told.size(), 1U) << "nobody but mallory is told anything";
  EXPECT_EQ(told[0].first, LinkId{3});
  EXPECT_EQ(told[0].second.run, RunId{7});
  EXPECT_THAT(told[0].second.sources, ElementsAre(SiteId{0}, SiteId{1}));
  expect_commit(c.start(1, 2));
}

TEST_F(AnotherAnchor, DoesNotTouchAnAttemptInFlight) {
  const wire::StartAttempt start = c.start(1, 2);
  EXPECT_THAT(sent<wire::InstallAnchor>(c.hear(3, kFarAhead)), IsEmpty()) << "none is told during an attempt";
  expect_commit(start);
}

// All that took part say that they are behind, the last other one goes, and nobody holds the anchor any more.
TEST_F(AnotherAnchor, AnAttemptGoesWithTheAnchorItWasAt) {
  expect_commit(c.start(1, 2));
  for (std::uint64_t link = 1; link <= 2; ++link)
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  const wire::StartAttempt start = c.start(2, 2);
  for (std::uint64_t link = 1; link <= 2; ++link) static_cast<void>(c.hear(link, CoordinatorHarness::ready(1)));
  EXPECT_THAT(notes(c.close(3)), HasSubstr("[join.anchor-lost]"));
  for (std::uint64_t link = 1; link <= 2; ++link)
    EXPECT_THAT(sent<wire::Commit>(c.hear(link, CoordinatorHarness::done(start))), IsEmpty());
}

// A commit that it was owed came between its Join and the anchor.
TEST(TheOnlySource, MayHavePutANewerOneInPlace) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, holding(join_of("paris", 2), {RunId{5}, RoundId{3}, kRight})));
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(2, join_of("tokyo", 2))).size(), 2U);
  const auto actions = c.hear(1, wire::AnchorInstalled{RunId{5}, RoundId{4}, kWrong});
  EXPECT_THAT(notes(actions), HasSubstr("an anchor is chosen again [join.anchor-changed]"));
  const auto told = sent<wire::InstallAnchor>(actions);
  ASSERT_EQ(told.size(), 2U);
  for (const auto& [link, install] : told) {
    EXPECT_EQ(install.round, RoundId{4});
    EXPECT_EQ(install.digest, kWrong);
    EXPECT_THAT(install.sources, ElementsAre(SiteId{0}));
  }
}

TEST(TheOnlySource, IsExpelledIfItChangesItsAnchorAgainAndAgain) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, holding(join_of("mallory", 2), {RunId{5}, RoundId{3}, kRight})));
  static_cast<void>(c.hear(2, join_of("tokyo", 2)));
  for (std::uint64_t round = 4; round < 7; ++round)
    EXPECT_THAT(refused_by(c.hear(1, wire::AnchorInstalled{RunId{5}, RoundId{round}, kWrong})), IsEmpty());
  EXPECT_THAT(refused_by(c.hear(1, wire::AnchorInstalled{RunId{5}, RoundId{7}, kWrong})),
              ElementsAre(HasSubstr("[join.anchor-unsteady]")));
}

// A site whose outer state was half overwritten when it joined finds that out as it is to keep its anchor.
TEST(TheOnlySource, IsNotBelievedWhileAnotherHolderHasNotReported) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, holding(join_of("paris", 2), {RunId{5}, RoundId{3}, kRight})));
  static_cast<void>(c.hear(2, holding(join_of("tokyo", 2), {RunId{5}, RoundId{3}, kRight})));
  EXPECT_THAT(sent<wire::InstallAnchor>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{3}, kWrong})), IsEmpty())
      << "tokyo may hold the right one";
  const auto told = sent<wire::InstallAnchor>(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{3}, kRight}));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].first, LinkId{1});
  EXPECT_EQ(told[0].second.digest, kRight);
  EXPECT_THAT(told[0].second.sources, ElementsAre(SiteId{1}));
}

TEST(TheOnlySource, IsBelievedWhereNobodyElseHoldsIt) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, holding(join_of("paris", 2), {RunId{5}, RoundId{3}, kRight})));
  wire::Join fresh = join_of("tokyo", 2);
  fresh.offer.digest = {3, 0};
  static_cast<void>(c.hear(2, fresh));
  const auto actions = c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{3}, kWrong});
  EXPECT_THAT(notes(actions), HasSubstr("[round.anchor-by-majority]"));
  for (const auto& [link, install] : sent<wire::InstallAnchor>(actions)) EXPECT_EQ(install.digest, kWrong);
}

}  // namespace
}  // namespace collab::protocol
