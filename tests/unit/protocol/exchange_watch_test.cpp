#include "core/protocol/coordinator/exchange_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr SiteId kParis{0};
constexpr SiteId kRome{1};
constexpr SiteId kOslo{2};
constexpr SiteId kLima{3};
const Duration kLimit = seconds(60);
const std::set<SiteId> kAll{kParis, kRome, kOslo, kLima};

// Four sites exchange from second 0 on.
class Watch : public testing::Test {
 protected:
  Watch() { watch.begin(kAll, at(0)); }
  static TimePoint at(int second) { return TimePoint{} + seconds(second); }
  void lacks(SiteId site, std::vector<SiteId> whose, bool means = false, int second = 1) {
    watch.heard(site, {.moved = 0, .means = means, .lacks = std::move(whose)}, at(second));
  }
  void moves(SiteId site, int second) { watch.heard(site, {.moved = static_cast<std::uint64_t>(second)}, at(second)); }
  [[nodiscard]] std::optional<ExchangeWatch::Stall> stall(int second, std::set<SiteId> open = kAll,
                                                          std::set<SiteId> say = kAll) const {
    return watch.stall(open, say, kLimit, at(second));
  }
  ExchangeWatch watch;
};

TEST_F(Watch, TheSiteWithTheMostMissedContributionHoldsTheExchangeUp) {
  lacks(kParis, {kLima});
  lacks(kRome, {kLima});
  lacks(kOslo, {kParis, kRome}, true);  // it waits for means, which wait for lima
  EXPECT_FALSE(stall(59)) << "not before the limit";
  ASSERT_TRUE(stall(60));
  EXPECT_THAT(stall(60)->held_up_by, ElementsAre(kLima));
}

TEST_F(Watch, ASiteThatWithholdsItsMeansHoldsUpWhenNoContributionIsMissing) {
  for (const SiteId site : {kParis, kRome, kOslo}) lacks(site, {kLima}, true);
  EXPECT_THAT(stall(60)->held_up_by, ElementsAre(kLima));
}

TEST_F(Watch, AnExchangeIsWaitedForWhileTwoSitesMove) {
  lacks(kParis, {kLima});
  lacks(kRome, {kLima});
  moves(kOslo, 30);
  moves(kLima, 30);
  EXPECT_FALSE(stall(89));
  EXPECT_TRUE(stall(90));
}

// They may be one peer, and say of the others what they like.
TEST_F(Watch, NewcomersThatClaimToMoveAreNotBelievedUnlessAVoterMoves) {
  const std::set<SiteId> say{kParis, kRome};
  for (const SiteId site : say) lacks(site, {kOslo, kLima});
  for (int second = 1; second < 100; ++second) {
    for (const SiteId site : {kOslo, kLima}) {
      watch.heard(site, {.moved = static_cast<std::uint64_t>(second), .lacks = {kParis, kRome}}, at(second));
    }
  }
  EXPECT_FALSE(stall(59, kAll, say));
  ASSERT_TRUE(stall(60, kAll, say));
  EXPECT_THAT(stall(60, kAll, say)->newcomers, ElementsAre(kOslo, kLima));
  EXPECT_THAT(stall(60, {kOslo, kLima}, say)->newcomers, ElementsAre(kOslo, kLima)) << "though the others are done";
  moves(kRome, 20);
  EXPECT_FALSE(stall(79, kAll, say)) << "it moves with somebody";
  EXPECT_TRUE(stall(80, kAll, say));
}

// Contributions go before means: of two with a thin line between them half is to come when the others have it all.
TEST_F(Watch, NewcomersThatSendToEachOtherGetTwiceTheTimeOfTheOthers) {
  const std::set<SiteId> say{kParis, kRome};
  for (int second = 1; second < 700; ++second) {
    for (const SiteId site : {kParis, kRome}) {
      if (second <= 200) moves(site, second);
    }
    for (const SiteId site : {kOslo, kLima}) moves(site, second);
  }
  EXPECT_FALSE(stall(599, {kOslo, kLima}, say));
  EXPECT_THAT(stall(600, {kOslo, kLima}, say)->newcomers, ElementsAre(kOslo, kLima));
  EXPECT_THAT(stall(600, {kLima}, say)->newcomers, ElementsAre(kLima)) << "oslo has said that it is done";
}

TEST_F(Watch, ASiteThatAloneClaimsToMoveIsNotBelieved) {
  for (const SiteId site : {kParis, kRome, kOslo}) lacks(site, {kLima});
  for (int second = 1; second < 60; ++second) moves(kLima, second);
  EXPECT_THAT(stall(60)->held_up_by, ElementsAre(kLima));
}

TEST_F(Watch, OneSitesReportCountsAgainstThePairOnly) {
  lacks(kLima, {kParis});
  const auto found = stall(60);
  ASSERT_TRUE(found && found->pair);
  EXPECT_THAT(found->held_up_by, IsEmpty());
  EXPECT_EQ(*found->pair, std::pair(kLima, kParis));
}

TEST_F(Watch, NoSiteIsBlamedIfHalfOfThemLackTheOtherHalf) {
  lacks(kParis, {kOslo, kLima});
  lacks(kRome, {kOslo, kLima});
  ASSERT_TRUE(stall(60));
  EXPECT_THAT(stall(60)->held_up_by, IsEmpty());
  EXPECT_FALSE(stall(60)->pair);
}

TEST_F(Watch, ASiteWithAllPartsThatIsNotDoneHoldsTheExchangeUp) {
  EXPECT_THAT(stall(60, {kOslo})->held_up_by, ElementsAre(kOslo));
}

TEST_F(Watch, ReportsAboutOneselfOrStrangersDoNotCount) {
  lacks(kParis, {kParis, SiteId{9}});
  watch.heard(SiteId{9}, {.moved = 0, .means = false, .lacks = {kRome}}, at(1));
  EXPECT_THAT(stall(60, {kOslo})->held_up_by, ElementsAre(kOslo));
}

TEST_F(Watch, TheSleepOfTheWatcherIsNobodysSilence) {
  watch.slept(seconds(100));
  EXPECT_FALSE(stall(159, {kOslo}));
  EXPECT_TRUE(stall(160, {kOslo}));
}

TEST_F(Watch, ANewExchangeForgetsEarlierReports) {
  for (const SiteId site : {kParis, kRome, kOslo}) lacks(site, {kLima});
  watch.begin({kParis, kRome, kOslo}, at(60));
  EXPECT_FALSE(stall(119));
  EXPECT_THAT(stall(120, {kRome})->held_up_by, ElementsAre(kRome));
}

TEST_F(Watch, HowOftenANameHeldOneUpIsRemembered) {
  EXPECT_EQ(watch.count_stall("lima"), 1U);
  watch.begin(kAll, at(60));
  EXPECT_EQ(watch.count_stall("lima"), 2U);
  EXPECT_EQ(watch.count_stall("oslo"), 1U);
  for (int i = 0; i < 2000; ++i) static_cast<void>(watch.count_stall("site" + std::to_string(i)));
  EXPECT_EQ(watch.count_stall("lima"), 3U) << "of so many names those that held up least are dropped";
}

// ---- what the leader does about it ---------------------------------------------------------------------

using H = CoordinatorHarness;

// paris, tokyo and lima on links 1 to 3; lima, of id 2, sends nothing of its part.
class HeldUp : public testing::Test {
 protected:
  HeldUp() { c.gather({"paris", "tokyo", "lima"}); }
  // For so long the sites say this, each second.
  H::Actions pass(int for_seconds, const std::map<std::uint64_t, wire::Exchanged>& said) {
    H::Actions all_actions;
    for (int second = 0; second < for_seconds; ++second) {
      for (const auto& [link, exchanged] : said)
        keep(c.hear(link, wire::Heartbeat{1, false, 0, exchanged}), all_actions);
      keep(c.pass(seconds(1)), all_actions);
    }
    return all_actions;
  }
  static void keep(H::Actions more, H::Actions& in) {
    for (auto& action : more) in.push_back(std::move(action));
  }
  // Paris lacks what tokyo has to send, for longer than a grace.
  static H::Actions stand_still(H& two) {
    H::Actions actions;
    for (int second = 0; second < 62; ++second) {
      keep(two.hear(1, wire::Heartbeat{1, false, 0, {0, false, {SiteId{1}}}}), actions);
      keep(two.hear(2, wire::Heartbeat{1, false}), actions);
      keep(two.pass(seconds(1)), actions);
    }
    return actions;
  }
  // After a round of its two sites two others have come, on links 3 and 4: the attempt at the next, of all four.
  static wire::StartAttempt start_with_newcomers(H& two) {
    const wire::StartAttempt first = two.start(1, 2);
    static_cast<void>(two.hear(1, H::done(first)));
    static_cast<void>(two.hear(2, H::done(first)));
    for (const std::uint64_t link : {3, 4}) static_cast<void>(two.hear(link, join_of("new" + std::to_string(link), 2)));
    for (const std::uint64_t link : {1, 2, 3, 4}) {
      static_cast<void>(two.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
    }
    return two.start(2, 4);
  }
  const wire::Exchanged kLacksLima{0, false, {SiteId{2}}};
  const wire::Exchanged kLacksParis{0, false, {SiteId{0}}};
  H c;
};

TEST_F(HeldUp, ASiteThatHoldsTheExchangeUpIsDroppedAfterAGrace) {
  static_cast<void>(c.start(1, 3));
  EXPECT_TRUE(sent<wire::StartAttempt>(pass(59, {{1, kLacksLima}, {2, kLacksLima}, {3, {}}})).empty());
  const auto actions = pass(3, {{1, kLacksLima}, {2, kLacksLima}, {3, {}}});
  EXPECT_THAT(notes(actions),
              HasSubstr("lima is no longer a member: nothing of its part in the exchange has arrived for"));
  EXPECT_EQ(sent<wire::StartAttempt>(actions).size(), 2U);
  EXPECT_TRUE(sent<wire::Refuse>(actions).empty()) << "it may come again";
}

TEST_F(HeldUp, TwoNewcomersThatClaimToMoveAreLeftOutAfterAGrace) {
  H two;
  two.gather({"paris", "tokyo"});
  EXPECT_EQ(start_with_newcomers(two).participants.size(), 4U);
  H::Actions actions;
  for (std::uint64_t second = 1; second < 63; ++second) {
    for (const std::uint64_t link : {1, 2})
      keep(two.hear(link, wire::Heartbeat{second, false, 0, {0, false, {SiteId{2}, SiteId{3}}}}), actions);
    for (const std::uint64_t link : {3, 4})
      keep(two.hear(link, wire::Heartbeat{second, false, 0, {second, false, {SiteId{0}, SiteId{1}}}}), actions);
    keep(two.pass(seconds(1)), actions);
  }
  EXPECT_THAT(notes(actions), HasSubstr("[round.newcomer-moves]"));
  const auto starts = sent<wire::StartAttempt>(actions);
  ASSERT_EQ(starts.size(), 2U) << "among paris and tokyo";
  EXPECT_EQ(starts[0].second.participants.size(), 2U);
}

// They make two attempts fail for want of a link, and the third is under way.
TEST_F(HeldUp, TheOthersGoOnWithoutNewcomersWhoseAttemptsLastUpToTheLimit) {
  CoordinatorConfig config = H::defaults();
  config.round_timeout = seconds(60);
  config.link_grace = seconds(5);
  H two(config);
  two.gather({"paris", "tokyo"});
  static_cast<void>(two.pass(seconds(1), {1, 2}));
  wire::StartAttempt start = start_with_newcomers(two);
  for (int tries = 0; tries < 2; ++tries) {
    static_cast<void>(two.pass(seconds(20), {1, 2, 3, 4}));
    const auto next = sent<wire::StartAttempt>(
        two.hear(2, wire::PeerUnreachable{RoundId{2}, start.attempt, SiteId{2}, "no link within 20 s"}));
    ASSERT_FALSE(next.empty());
    start = next[0].second;
    EXPECT_EQ(start.participants.size(), 4U);
  }
  const auto actions = two.pass(seconds(21), {1, 2, 3, 4});
  EXPECT_TRUE(sent<wire::RoundSkipped>(actions).empty());
  EXPECT_THAT(notes(actions), HasSubstr("[round.exchange-timeout]"));
  const auto starts = sent<wire::StartAttempt>(actions);
  ASSERT_EQ(starts.size(), 2U) << "among paris and tokyo";
  EXPECT_EQ(starts[0].second.participants.size(), 2U);
}

// So it may be a minute and as long as the others' exchange takes, before and after.
TEST_F(HeldUp, TheMinuteBeginsOnceNoTwoMoveAnyMore) {
  static_cast<void>(c.start(1, 3));
  for (std::uint64_t second = 1; second <= 8; ++second) {
    const wire::Exchanged moves{second, false, {SiteId{2}}};
    EXPECT_TRUE(sent<wire::StartAttempt>(pass(1, {{1, moves}, {2, moves}, {3, {}}})).empty());
  }
  const wire::Exchanged stands{8, false, {SiteId{2}}};
  EXPECT_TRUE(sent<wire::StartAttempt>(pass(58, {{1, stands}, {2, stands}, {3, {}}})).empty());
  EXPECT_EQ(sent<wire::StartAttempt>(pass(3, {{1, stands}, {2, stands}, {3, {}}})).size(), 2U);
}

TEST_F(HeldUp, TheThirdTimeItIsRefused) {
  H::Actions last;
  for (std::uint64_t times = 1; times <= 3; ++times) {
    static_cast<void>(c.start(times, 3));
    last = pass(63, {{1, kLacksLima}, {2, kLacksLima}, {3, {}}});
    EXPECT_EQ(c.coordinator.members(), 2U);
    const auto starts = sent<wire::StartAttempt>(last);
    ASSERT_EQ(starts.size(), 2U);
    for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(starts[0].second)));
    static_cast<void>(c.hear(3, join_of("lima", 3)));
    for (const std::uint64_t link : {1, 2, 3}) {
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{times}, kRight}));
    }
    static_cast<void>(c.pass(seconds(61), {1, 2, 3}));  // newcomers have a rest as long as what they held up
  }
  ASSERT_EQ(sent<wire::Refuse>(last).size(), 1U);
  EXPECT_THAT(sent<wire::Refuse>(last)[0].second.reason, HasSubstr("[round.stalls-again]"));
}

TEST_F(HeldUp, AReportAboutOneSiteIsHeldAgainstThePairAndNeitherIsLeftOut) {
  static_cast<void>(c.start(1, 3));
  const auto actions = pass(62, {{1, {}}, {2, {}}, {3, kLacksParis}});
  EXPECT_THAT(notes(actions),
              HasSubstr("lima cannot exchange with paris: nothing of its part in the exchange has arrived"));
  EXPECT_EQ(sent<wire::StartAttempt>(actions).size(), 3U);
  EXPECT_EQ(c.coordinator.members(), 3U);
}

TEST_F(HeldUp, NeitherOfTwoSitesIsDroppedAndBothTrainOn) {
  H two;
  two.gather({"paris", "tokyo"});
  static_cast<void>(two.start(1, 2));
  const H::Actions actions = stand_still(two);
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 2U);
  EXPECT_THAT(sent<wire::RoundSkipped>(actions)[0].second.reason,
              HasSubstr("the exchange has made no progress for 60 s"));
  EXPECT_EQ(two.coordinator.members(), 2U);
}

// The one was done with it, the other never will be. What was said of that attempt counts for no other.
TEST_F(HeldUp, AfterwardsAnotherAttemptIsCommittedOnceBothAreDone) {
  H two;
  two.gather({"paris", "tokyo"});
  static_cast<void>(two.hear(2, H::done(two.start(1, 2))));
  const H::Actions actions = stand_still(two);
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 2U);
  const wire::StartAttempt again = two.start(1, 2);
  EXPECT_TRUE(sent<wire::Commit>(two.hear(2, H::done(again))).empty());
  EXPECT_EQ(sent<wire::Commit>(two.hear(1, H::done(again))).size(), 2U);
}

// Five that were in a round; some of them seem to move. What they can hold up, and for how long.
class HeldUpByMembers : public HeldUp {
 protected:
  using Says = std::function<wire::Exchanged(std::uint64_t link, std::uint64_t second)>;
  HeldUpByMembers() {
    const std::vector<std::string> names{"paris", "tokyo", "lima", "oslo", "rome"};
    for (std::uint64_t link = 1; link <= 5; ++link) {
      wire::Join join = join_of(names[link - 1], 5);
      join.elements = 1 << 20;  // all own some
      static_cast<void>(five.hear(link, join));
    }
    for (const std::uint64_t link : {1, 2, 3, 4, 5})
      static_cast<void>(five.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    commit(five.start(1, 5), {1, 2, 3, 4, 5});
  }
  void commit(const wire::StartAttempt& start, const std::vector<std::uint64_t>& links) {
    H::Actions last;
    for (const std::uint64_t link : links) last = five.hear(link, H::done(start));
    EXPECT_EQ(sent<wire::Commit>(last).size(), links.size());
    for (const std::uint64_t link : {1, 2, 3, 4, 5})
      static_cast<void>(five.hear(link, wire::AnchorInstalled{RunId{7}, start.round, kRight}));
  }
  // Seconds until another attempt is formed, and that one.
  std::pair<std::uint64_t, wire::StartAttempt> wait_for_the_next(const Says& says) {
    for (std::uint64_t second = 1; second < 7200; ++second) {
      H::Actions actions;
      for (const std::uint64_t link : {1, 2, 3, 4, 5})
        keep(five.hear(link, wire::Heartbeat{second, false, 0, says(link, second)}), actions);
      keep(five.pass(seconds(1)), actions);
      const auto starts = sent<wire::StartAttempt>(actions);
      if (!starts.empty()) return {second, starts[0].second};
      if (!sent<wire::RoundSkipped>(actions).empty()) break;
    }
    return {};
  }
  static constexpr std::uint64_t kLimit = 1800;  // COLLAB_ROUND_TIMEOUT
  static constexpr std::uint64_t kMoved = 1'000'000;
  H five;
};

TEST_F(HeldUpByMembers, TwoMembersThatClaimToMoveInTurnDelayEachRoundToItsLimit) {
  for (std::uint64_t round = 2; round <= 4; ++round) {
    static_cast<void>(five.start(round, 5));
    const auto [waited, next] = wait_for_the_next([](std::uint64_t link, std::uint64_t second) {
      const bool moves = link > 3;
      return wire::Exchanged{moves ? (second + link) / 2 : kMoved, false, {SiteId{moves ? 0U : 3U}, SiteId{4}}};
    });
    EXPECT_NEAR(static_cast<double>(waited), kLimit, 2);
    EXPECT_EQ(next.participants.size(), 3U);
    commit(next, {1, 2, 3});
  }
}

// What it sends to paris moves there, too.
TEST_F(HeldUpByMembers, AMemberThatTricklesDelaysEachRoundToItsLimit) {
  static_cast<void>(five.start(2, 5));
  const auto [waited, next] = wait_for_the_next([](std::uint64_t link, std::uint64_t second) {
    const std::uint64_t moved = link == 1 || link == 5 ? second / 50 : 0;
    return wire::Exchanged{kMoved + moved, false, {SiteId{link == 5 ? 0U : 4U}}};
  });
  EXPECT_NEAR(static_cast<double>(waited), kLimit, 2);
  EXPECT_EQ(next.participants.size(), 4U);
}

// At the first limit all have moved since the begin. It says that it is somebody's contribution it waits for.
TEST_F(HeldUpByMembers, AMemberThatWithholdsItsMeansDelaysARoundByTwoLimits) {
  static_cast<void>(five.start(2, 5));
  const auto [waited, next] = wait_for_the_next([](std::uint64_t link, std::uint64_t second) {
    const std::uint64_t moved = link == 1 || link == 5 ? second / 50 : 0;
    return wire::Exchanged{kMoved + moved, link != 5, {SiteId{link == 5 ? 0U : 4U}}};
  });
  EXPECT_NEAR(static_cast<double>(waited), 2 * kLimit, 2);
  EXPECT_EQ(next.participants.size(), 4U);
  commit(next, {1, 2, 3, 4});
}

// One after the other says so of them, when the limit for links has passed. Names that anybody can have.
TEST_F(HeldUpByMembers, NewcomersWithoutALinkDelayARoundByAGraceAndAnAttempt) {
  for (const std::uint64_t link : {6, 7}) {
    wire::Join join = join_of("new" + std::to_string(link), 5);
    join.elements = 1 << 20;
    static_cast<void>(five.hear(link, join));
    static_cast<void>(five.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  }
  wire::StartAttempt start = five.start(2, 7);
  const TimePoint began = five.now;
  std::vector<std::size_t> members;
  for (std::uint64_t link = 1; start.participants.size() > 5 && members.size() < 20; ++link) {
    static_cast<void>(five.pass(seconds(20), {1, 2, 3, 4, 5, 6, 7}));
    const SiteId newcomer = start.participants.back().site;
    const auto next = sent<wire::StartAttempt>(
        five.hear(1 + link % 5, wire::PeerUnreachable{RoundId{2}, start.attempt, newcomer, "no link within 20 s"}));
    ASSERT_FALSE(next.empty());
    start = next[0].second;
    members.push_back(start.participants.size());
  }
  EXPECT_THAT(members, ElementsAre(7, 7, 6, 5));
  EXPECT_EQ(five.now - began, seconds(80));
  commit(start, {1, 2, 3, 4, 5});
  EXPECT_EQ(five.start(3, 5).participants.size(), 5U) << "they have a rest";
}

// As half of them are no more than half: nobody is to blame, and all train on.
TEST_F(HeldUpByMembers, AMemberThatHalfOfTheOthersLackDelaysARoundByThreeLimits) {
  static_cast<void>(five.start(2, 5));
  std::uint64_t waited = 0;
  const auto [second_of_next, next] = wait_for_the_next([&](std::uint64_t link, std::uint64_t second) {
    waited = second;
    const std::uint64_t moved = (kMoved << (second / 600)) + second / 50;
    if (link == 1 || link == 2) return wire::Exchanged{kMoved, false, {}};
    return wire::Exchanged{moved, true, {SiteId{4}}};
  });
  EXPECT_EQ(second_of_next, 0U) << "there is none";
  EXPECT_NEAR(static_cast<double>(waited), 3 * kLimit, 2);
}

}  // namespace
}  // namespace collab::protocol
