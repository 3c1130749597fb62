// A site on its way into the swarm, and back after a loss.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;

TEST(SiteJoin, DialsJoinsInstallsTheAnchorAndTrains) {
  SiteHarness s;
  EXPECT_EQ(all<DialCoordinator>(s.step(Begin{join_of("paris")}))[0].candidate, 0U);
  EXPECT_EQ(sent<wire::Join>(s.step(CoordinatorConnected{LinkId{1}})).size(), 1U);
  EXPECT_TRUE(s.hear(1, wire::Welcome{TermId{1}, SiteId{0}, 1000, 60000}).empty());
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris"})));
  const auto keep = s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, kRight});
  EXPECT_EQ(all<KeepAnchor>(keep)[0].run, RunId{7});
  const auto done = s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight});
  EXPECT_EQ(sent<wire::AnchorInstalled>(done)[0].second,
            (wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight, acceptor_of("paris")}));
  EXPECT_EQ(all<JoinDone>(done)[0].site, SiteId{0});
}

TEST(SiteJoin, AMissingAddressIsAnErrorThatNamesTheKnob) {
  SiteHarness s{SiteConfig{}};
  EXPECT_THAT(all<Failed>(s.step(Begin{join_of("paris")}))[0].why.message(), HasSubstr("COLLAB_COORDINATOR"));
}

// One that leads is not to wait behind those that are dead.
TEST(SiteJoin, TriesEachAddressWithGrowingPausesOnceAllAreTried) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  std::vector<std::uint32_t> candidates;
  std::vector<Duration> pauses;
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(s.step(DialFailed{std::nullopt, unavailable("connection refused")}).empty());
    pauses.push_back(s.site.next_deadline() - s.now);
    candidates.push_back(all<DialCoordinator>(s.tick(pauses.back())).at(0).candidate);
  }
  EXPECT_EQ(candidates, (std::vector<std::uint32_t>{1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
  const auto s02 = seconds(0.2);
  EXPECT_EQ(pauses, (std::vector{s02, s02, s02, 2 * s02, s02, 4 * s02, s02, 8 * s02, s02, 16 * s02, s02, seconds(5)}));
}

TEST(SiteJoin, GivesUpAfterTheTimeoutNamingAddressesAndReason) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(DialFailed{std::nullopt, unavailable("connection refused")}));
  const auto failed = all<Failed>(s.pass(seconds(301)));
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_THAT(failed[0].why.message(), HasSubstr("first:1, second:2"));
  EXPECT_THAT(failed[0].why.message(), HasSubstr("300 s (COLLAB_JOIN_TIMEOUT)"));
  EXPECT_THAT(failed[0].why.message(), HasSubstr("collab coordinator --listen"));
  EXPECT_EQ(s.site.next_deadline(), kNever);
  EXPECT_TRUE(s.step(Tick{}).empty());
}

TEST(SiteJoin, ASiteThatWasLetInMayAskForAsLongAgainOnce) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.pass(seconds(290)));
  for (const std::uint64_t link : {1, 2}) {
    static_cast<void>(s.step(CoordinatorConnected{LinkId{link}}));
    static_cast<void>(s.hear(link, wire::Welcome{TermId{link}, SiteId{0}, 1000, 60000}));
    static_cast<void>(s.step(Closed{LinkId{link}, unavailable("reset")}));
    EXPECT_TRUE(all<Failed>(s.pass(seconds(290))).empty() == (link == 1));
  }
}

TEST(SiteJoin, TheCoordinatorsTimesAreTakenWithinBounds) {
  constexpr std::uint32_t kDay = 24 * 3600 * 1000;
  for (const auto& [own, heartbeat_ms, grace_ms, heartbeat, grace] :
       {std::tuple(60.0, 1000U, 600'000U, 1.0, 600.0), std::tuple(60.0, 1U, kDay, 0.01, 600.0),
        std::tuple(900.0, 1000U, kDay, 1.0, 3600.0), std::tuple(60.0, kDay, kDay, 60.0, 600.0),
        std::tuple(60.0, 1000U, 1U, 1.0, 2.0)}) {
    SiteConfig config = SiteHarness::defaults();
    config.link_grace = seconds(own);
    SiteHarness s(config);
    static_cast<void>(s.step(Begin{join_of("paris")}));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
    const auto told = s.hear(1, wire::Welcome{TermId{1}, SiteId{0}, heartbeat_ms, grace_ms});
    EXPECT_EQ(s.site.heartbeat(), seconds(heartbeat));
    EXPECT_EQ(notes(told).find("[coordinator.times]") == std::string::npos, grace_ms == 600'000U);
    const TimePoint began = s.now;
    for (auto gone = told; all<CloseLink>(gone).empty(); gone = s.pass(seconds(0.5)))
      ASSERT_LT(s.now - began, seconds(4000));
    EXPECT_NEAR(std::chrono::duration<double>(s.now - began).count(), grace, heartbeat + 1) << "it is silent so long";
  }
}

// Else it would wander between candidates for good.
TEST(SiteJoin, ACoordinatorThatAnswersOnceAHeartbeatIsNotLeft) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{0}, 5000, 15000}));
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{2}}));
  for (int beat = 0; beat < 6; ++beat) {
    EXPECT_TRUE(all<CloseLink>(s.pass(seconds(5))).empty()) << "after " << 5 * beat << " s";
    static_cast<void>(s.hear(2, wire::Leads{}));
  }
}

TEST(SiteJoin, ACoordinatorThatDoesNotAnswerIsLeft) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  const auto actions = s.pass(seconds(61));
  EXPECT_EQ(all<CloseLink>(actions)[0].link, LinkId{1});
  EXPECT_EQ(all<DialCoordinator>(actions)[0].candidate, 1U);
}

// A host that is stopped takes a connection, and says nothing.
class SiteJoinInTwoSeconds : public testing::Test {
 protected:
  static SiteConfig config() {
    SiteConfig config = SiteHarness::defaults();
    config.join_timeout = seconds(2);
    return config;
  }
  // Before it gives up, and not only to be asked what it leads.
  bool dials_the_second() {
    return std::ranges::any_of(all<DialCoordinator>(s.pass(seconds(1.5))),
                               [](const DialCoordinator& dial) { return dial.candidate == 1 && !dial.inquiry; });
  }
  SiteHarness s{config()};
};

TEST_F(SiteJoinInTwoSeconds, TheSecondCandidateIsDialledInTimeIfTheFirstIsSilent) {
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  EXPECT_TRUE(dials_the_second());
}

TEST_F(SiteJoinInTwoSeconds, TheSecondCandidateIsDialledInTimeIfTheFirstDoesNotConnect) {
  static_cast<void>(s.step(Begin{join_of("paris")}));
  EXPECT_TRUE(dials_the_second());
}

TEST(SiteJoin, ALinkLostBeforeWelcomeIsTriedAgain) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  EXPECT_TRUE(all<Failed>(s.step(Closed{LinkId{1}, unavailable("reset")})).empty());
  EXPECT_EQ(all<DialCoordinator>(s.pass(seconds(1))).size(), 1U);
}

TEST(SiteJoin, ARefusalIsFinal) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  const auto failed = all<Failed>(s.hear(1, wire::Refuse{"codec: this site has int8, the swarm has fp16"}));
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].why.code(), StatusCode::kRefused);
  EXPECT_THAT(failed[0].why.message(), HasSubstr("int8"));
}

TEST(SiteJoin, AWrongKeyIsFinalToo) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  const auto failed = all<Failed>(s.step(DialFailed{std::nullopt, refused("its token is not ours")}));
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].why.message(), "its token is not ours");
  SiteHarness later;
  static_cast<void>(later.step(Begin{join_of("paris")}));
  static_cast<void>(later.step(CoordinatorConnected{LinkId{1}}));
  EXPECT_EQ(all<Failed>(later.step(Closed{LinkId{1}, refused("its token is not ours")})).size(), 1U);
  SiteHarness member;
  member.become(0, {"paris"});
  static_cast<void>(member.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(member.pass(seconds(1)));
  EXPECT_TRUE(all<Failed>(member.step(DialFailed{std::nullopt, refused("its token is not ours")})).empty())
      << "who is a member tries on";
}

class SiteFetches : public testing::Test {
 protected:
  // Site 1, told to take the anchor from site 0.
  SiteFetches() { s.join_with_another(1, {"paris", "tokyo"}); }
  SiteHarness::Actions install() {
    return s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{4}, {SiteId{0}}, kRight});
  }
  SiteHarness s;
};

TEST_F(SiteFetches, TheAnchorFromTheSource) {
  const auto begun = install();
  EXPECT_EQ(all<DialPeer>(begun)[0].address, "paris:1");
  EXPECT_EQ(all<ReceiveAnchor>(begun)[0].digest, kRight);
  EXPECT_EQ(sent<wire::Hello>(s.step(PeerConnected{SiteId{0}, LinkId{2}})).size(), 1U);
  const auto actions = s.hear(2, wire::Hello{"swarm", TermId{1}, SiteId{0}, "paris"});
  EXPECT_EQ(all<AddAnchorSource>(actions)[0].over, LinkId{2});
  EXPECT_EQ(all<JoinDone>(s.step(AnchorInPlace{RunId{7}, RoundId{4}, kRight})).size(), 1U);
}

TEST_F(SiteFetches, OnceMoreAfterAWrongDigestAndThenRejoinsForAnotherSource) {
  static_cast<void>(install());
  s.link_to(0, "paris", 2);
  const auto again = s.step(AnchorInPlace{RunId{7}, RoundId{4}, kWrong});
  EXPECT_THAT(notes(again), HasSubstr("[repair] the anchor of round 4 fetched from paris has the digest"));
  EXPECT_EQ(all<ReceiveAnchor>(again).size(), 1U);
  const auto gone = s.step(AnchorInPlace{RunId{7}, RoundId{4}, kWrong});
  EXPECT_TRUE(all<Failed>(gone).empty()) << "paris alone may be wrong";
  EXPECT_EQ(all<CloseLink>(gone).at(0).link, LinkId{1});
}

// Its outer state is that of no anchor any more. It was never a member, and is the one that is asked for its anchor
// now.
TEST_F(SiteFetches, ADamagedTransferIsReportedAndNotFatal) {
  static_cast<void>(install());
  s.link_to(0, "paris", 2);
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  static_cast<void>(s.hear(5, wire::Welcome{TermId{2}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(5, wire::InstallAnchor{TermId{2}, RunId{6}, RoundId{3}, {SiteId{1}}, kRight}));
  const auto told = s.step(AnchorInPlace{RunId{6}, RoundId{3}, kWrong});
  EXPECT_TRUE(all<Failed>(told).empty());
  EXPECT_EQ(sent<wire::AnchorInstalled>(told).at(0).second.digest, kWrong);
  const auto kept = s.hear(5, wire::InstallAnchor{TermId{2}, RunId{6}, RoundId{3}, {SiteId{1}}, kWrong});
  EXPECT_EQ(all<KeepAnchor>(kept).size(), 1U);
  EXPECT_EQ(all<JoinDone>(s.step(AnchorInPlace{RunId{6}, RoundId{3}, kWrong})).size(), 1U);
}

TEST_F(SiteFetches, OverANewLinkWhenTheFirstIsLost) {
  static_cast<void>(install());
  s.link_to(0, "paris", 2);
  EXPECT_EQ(all<DropAnchorSource>(s.step(Closed{LinkId{2}, unavailable("reset")}))[0].site, SiteId{0});
  EXPECT_EQ(all<DialPeer>(s.pass(seconds(1))).size(), 1U);
  static_cast<void>(s.step(PeerConnected{SiteId{0}, LinkId{3}}));
  const auto again = s.hear(3, wire::Hello{"swarm", TermId{1}, SiteId{0}, "paris"});
  EXPECT_EQ(all<AddAnchorSource>(again)[0].over, LinkId{3});
  EXPECT_TRUE(all<ReceiveAnchor>(again).empty()) << "what has come stays";
}

// Site 2, told to take the anchor of round 4 from sites 0 and 1.
class SiteFetchesFromTwo : public testing::Test {
 protected:
  SiteFetchesFromTwo() {
    s.join_with_another(2, {"paris", "oslo", "tokyo"});
    begun = install({SiteId{0}, SiteId{1}});
    s.link_to(0, "paris", 2);
    s.link_to(1, "oslo", 3);
  }
  SiteHarness::Actions install(std::vector<SiteId> sources, std::uint64_t round = 4) {
    return s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{round}, std::move(sources), kRight});
  }
  SiteHarness::Actions begun;
  SiteHarness s;
};

TEST_F(SiteFetchesFromTwo, BothSourcesAreAskedAtOnce) {
  EXPECT_EQ(all<DialPeer>(begun).size(), 2U);
  EXPECT_EQ(all<ReceiveAnchor>(begun).size(), 1U);
  EXPECT_THAT(s.site.waiting_for(s.now), HasSubstr("the anchor of round 4 from paris, oslo"));
  EXPECT_EQ(all<JoinDone>(s.step(AnchorInPlace{RunId{7}, RoundId{4}, kRight})).size(), 1U);
}

TEST_F(SiteFetchesFromTwo, TheSourceThatSentOtherBytesIsNamed) {
  const auto wrong = s.step(AnchorSourceWrong{SiteId{0}, "its elements [0, 10) are not those agreed on"});
  EXPECT_THAT(notes(wrong),
              HasSubstr("[repair] the anchor of round 4 is no longer fetched from paris: its elements [0, 10)"));
  EXPECT_EQ(all<DropAnchorSource>(wrong)[0].site, SiteId{0});
  EXPECT_EQ(all<Note>(wrong)[0].fields[0], (std::pair<std::string, std::string>{"who", "\"paris\""}));
  // Not again over another link either.
  static_cast<void>(s.step(Closed{LinkId{2}, unavailable("reset")}));
  s.now += seconds(1);
  static_cast<void>(s.step(PeerConnected{SiteId{0}, LinkId{9}}));
  EXPECT_TRUE(all<AddAnchorSource>(s.hear(9, wire::Hello{"swarm", TermId{1}, SiteId{0}, "paris"})).empty());
  // Where nobody is left, once more from all; then it gives up.
  const auto again = s.step(AnchorSourceWrong{SiteId{1}, "too"});
  EXPECT_THAT(notes(again), HasSubstr("it is fetched once more from paris, oslo"));
  EXPECT_EQ(all<AddAnchorSource>(again).size(), 2U);
  static_cast<void>(s.step(AnchorSourceWrong{SiteId{0}, "again"}));
  EXPECT_EQ(all<Failed>(s.step(AnchorSourceWrong{SiteId{1}, "again"})).at(0).why.code(), StatusCode::kCorrupt);
}

TEST_F(SiteFetchesFromTwo, ANewerAnchorIsFetchedWhenBothHaveMovedOn) {
  EXPECT_TRUE(s.hear(2, wire::AnchorMoved{RunId{7}, RoundId{4}}).empty()) << "an answer to an earlier question";
  const auto one = s.hear(2, wire::AnchorMoved{RunId{7}, RoundId{5}});
  EXPECT_EQ(all<DropAnchorSource>(one)[0].site, SiteId{0});
  EXPECT_THAT(notes(one), HasSubstr("paris no longer holds the anchor of round 4, but that of run 7 round 5"));
  const auto two = s.hear(3, wire::AnchorMoved{RunId{7}, RoundId{5}});
  EXPECT_EQ(all<StopReceiving>(two).size(), 1U);
  EXPECT_EQ(all<CloseLink>(two)[0].link, LinkId{1});
  EXPECT_EQ(all<DialCoordinator>(s.pass(seconds(1))).size(), 1U);
  EXPECT_EQ(sent<wire::Join>(s.step(CoordinatorConnected{LinkId{5}})).size(), 1U);
  static_cast<void>(s.hear(5, wire::Welcome{TermId{1}, SiteId{2}, 1000, 60000}));
  const auto newer = s.hear(
      5, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{5}, {SiteId{0}, SiteId{1}}, kRight, wire::Counted::kNo, {}});
  EXPECT_EQ(all<ReceiveAnchor>(newer).at(0).round, RoundId{5});
  EXPECT_EQ(all<AddAnchorSource>(newer).size(), 2U);
}

TEST_F(SiteFetchesFromTwo, TheFetchGoesOnWhenTheSourcesChange) {
  static_cast<void>(s.step(Closed{LinkId{2}, unavailable("reset")}));
  const auto fewer = install({SiteId{1}});
  EXPECT_TRUE(all<StopReceiving>(fewer).empty());
  EXPECT_TRUE(all<ReceiveAnchor>(fewer).empty());
  EXPECT_TRUE(all<DropAnchorSource>(fewer).empty());
  EXPECT_EQ(all<StopReceiving>(install({SiteId{1}}, 5)).size(), 1U) << "another anchor";
}

TEST_F(SiteFetches, WithinALimit) {
  static_cast<void>(install());
  for (int i = 0; i < 2000; ++i) static_cast<void>(s.hear(1, wire::Heartbeat{})), static_cast<void>(s.pass(seconds(1)));
  EXPECT_THAT(s.site.waiting_for(s.now), HasSubstr("has failed"));
}

TEST_F(SiteFetches, NothingWhenItHoldsTheAnchorAlready) {
  EXPECT_EQ(
      all<KeepAnchor>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, kWrong})).size(), 1U);
}

TEST(SiteRejoin, ALostCoordinatorIsFoundAgainAndToldReadyAgain) {
  SiteHarness s;
  s.become(0, {"paris", "tokyo"});
  EXPECT_EQ(sent<wire::Ready>(s.step(Trigger{8, 4})).size(), 1U);
  EXPECT_THAT(notes(s.step(Closed{LinkId{1}, unavailable("reset")})), HasSubstr("[coordinator]"));
  EXPECT_EQ(all<DialCoordinator>(s.pass(seconds(1))).size(), 1U);
  const auto join = sent<wire::Join>(s.step(CoordinatorConnected{LinkId{5}}));
  EXPECT_EQ(join[0].second.offer, (wire::Offer{RunId{7}, RoundId{0}, kRight}));
  EXPECT_EQ(join[0].second.index, 0U);
  EXPECT_EQ(join[0].second.expected_sites, 2U);
  static_cast<void>(s.hear(5, wire::Welcome{TermId{2}, SiteId{0}, 1000, 60000}));
  static_cast<void>(s.hear(5, wire::InstallAnchor{TermId{2}, RunId{7}, RoundId{0}, {SiteId{1}}, kRight}));
  const auto back = s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight});
  EXPECT_TRUE(all<JoinDone>(back).empty());
  ASSERT_EQ(sent<wire::Ready>(back).size(), 1U);
  EXPECT_EQ(sent<wire::Ready>(back)[0].second.weight, 8);
}

// Back at its trigger, after round 1 was committed by the others.
class SiteRebase : public testing::Test {
 protected:
  SiteRebase() {
    s.become(1, {"paris", "tokyo"});
    static_cast<void>(s.step(Trigger{8, 4}));
  }
  void done_with_round_1() {
    s.link_to(0, "paris", 2);
    static_cast<void>(s.hear(1, SiteHarness::start(1, 1, 2)));
    static_cast<void>(s.step(ExchangeComplete{RoundId{1}, AttemptId{1}, {kRight, kRight}}));
  }
  SiteHarness::Actions return_to(std::uint64_t round, wire::Counted counted, std::uint32_t attempt = 0,
                                 std::uint64_t run = 7) {
    static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
    static_cast<void>(s.pass(seconds(1)));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
    static_cast<void>(s.hear(5, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
    static_cast<void>(s.hear(5, SiteHarness::roster({"paris", "tokyo"})));
    wire::InstallAnchor install{TermId{1}, RunId{run}, RoundId{round}, {SiteId{0}}, kWrong, counted};
    install.attempt = AttemptId{attempt};
    static_cast<void>(s.hear(5, install));
    s.link_to(0, "paris", 6);
    return s.step(AnchorInPlace{RunId{run}, RoundId{round}, kWrong});
  }
  SiteHarness s;
};

TEST_F(SiteRebase, NothingWasContributedSoAllCountsLater) {
  const auto back = return_to(1, wire::Counted::kNo);
  EXPECT_THAT(notes(back), HasSubstr("[rebase] the swarm went on to round 1 while this site was at 0"));
  EXPECT_EQ(all<Rebase>(back).at(0).base, Base::kOldAnchor);
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second, (wire::Ready{RoundId{2}, 8, 8, 4, kWrong}));
}

TEST_F(SiteRebase, CountedWorkIsNotCountedAgain) {
  done_with_round_1();
  const auto back = return_to(1, wire::Counted::kYes, 1);
  EXPECT_EQ(all<Rebase>(back).at(0).base, Base::kParameters);
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second, (wire::Ready{RoundId{2}, 0, 0, 0, kWrong}));
}

// Under the old name it may have been committed, and nobody here knows: they go on from the same anchor.
TEST_F(SiteRebase, CountedWorkIsNotCountedAgainWhenTheRunIsRenamed) {
  done_with_round_1();
  wire::InstallAnchor renamed{TermId{1}, RunId{8}, RoundId{0}, {SiteId{1}}, kRight, wire::Counted::kUnknown};
  const auto keeps = s.hear(1, renamed);
  EXPECT_EQ(all<KeepAnchor>(keeps).size(), 1U);
  const auto kept = s.step(AnchorInPlace{RunId{8}, RoundId{0}, kRight});
  EXPECT_EQ(all<Rebase>(kept).at(0).base, Base::kParameters);
  EXPECT_EQ(sent<wire::Ready>(kept).at(0).second.samples, 0U);
  const auto back = return_to(1, wire::Counted::kNo, 0, 8);
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second.samples, 0U);
}

// A process of this site that is gone contributed to the attempt that was committed; this one to a later attempt.
TEST_F(SiteRebase, AnEarlierProcessesContributionIsNotOurs) {
  s.link_to(0, "paris", 2);
  static_cast<void>(s.hear(1, SiteHarness::start(1, 2, 2)));
  const auto back = return_to(1, wire::Counted::kYes, 1);
  EXPECT_EQ(all<Rebase>(back).at(0).base, Base::kOldAnchor);
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second.samples, 8U);
}

// What stands of a contribution is sent once: it is part of every attempt from the first on.
TEST_F(SiteRebase, AContributionCountsInALaterAttemptToo) {
  done_with_round_1();
  const auto back = return_to(1, wire::Counted::kYes, 3);
  EXPECT_EQ(all<Rebase>(back).at(0).base, Base::kParameters);
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second.samples, 0U);
}

TEST_F(SiteRebase, AContributionThatMayHaveCountedIsTakenAsCounted) {
  done_with_round_1();
  EXPECT_EQ(sent<wire::Ready>(return_to(1, wire::Counted::kUnknown)).at(0).second.samples, 0U);
}

TEST_F(SiteRebase, AnUnknownOutcomeIsIgnoredIfNothingWasContributed) {
  EXPECT_EQ(sent<wire::Ready>(return_to(1, wire::Counted::kUnknown)).at(0).second.samples, 8U);
}

TEST_F(SiteRebase, AContributionKnownToBeLostComesAgain) {
  done_with_round_1();
  const auto back = return_to(1, wire::Counted::kNo);
  EXPECT_EQ(all<Rebase>(back).at(0).base, Base::kOldAnchor);
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second.samples, 8U);
}

TEST_F(SiteRebase, TheSameAnchorUnderAnotherNameMovesNothing) {
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{8}, RoundId{0}, {SiteId{0}}, kRight}));
  const auto kept = s.step(AnchorInPlace{RunId{8}, RoundId{0}, kRight});
  EXPECT_TRUE(all<Rebase>(kept).empty());
  EXPECT_EQ(sent<wire::Ready>(kept).at(0).second.samples, 8U);
}

// The one way to an older anchor under another name: the site was told to keep what it held, and had begun to
// overwrite.
TEST_F(SiteRebase, ADifferingAnchorIsOfferedAsItIsAndNotKeptAgain) {
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{8}, RoundId{0}, {SiteId{0}}, kRight}));
  EXPECT_EQ(all<ReceiveAnchor>(s.step(AnchorInPlace{RunId{8}, RoundId{0}, kWrong})).size(), 1U);
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  EXPECT_EQ(sent<wire::Join>(s.step(CoordinatorConnected{LinkId{5}})).at(0).second.offer.digest, kWrong);
  static_cast<void>(s.hear(5, wire::Welcome{TermId{2}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(5, SiteHarness::roster({"paris", "tokyo"})));
  const auto again = s.hear(5, wire::InstallAnchor{TermId{2}, RunId{9}, RoundId{0}, {SiteId{0}}, kRight});
  EXPECT_TRUE(all<KeepAnchor>(again).empty());
  EXPECT_EQ(all<ReceiveAnchor>(again).size(), 1U);
}

// The parameters are yet to be moved from the anchor before, which lies where a renamed anchor would be put.
TEST_F(SiteRebase, AnAnchorIsNotRenamedBeforeTheRebaseThatIsOwed) {
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{1}, {SiteId{0}}, kWrong}));
  static_cast<void>(s.hear(1, wire::RoundSkipped{TermId{1}, RoundId{1}, "no majority"}));
  EXPECT_TRUE(all<Rebase>(s.step(AnchorInPlace{RunId{7}, RoundId{1}, kWrong})).empty());
  const wire::InstallAnchor renamed{TermId{1}, RunId{8}, RoundId{1}, {SiteId{0}}, kWrong};
  const auto offered = s.hear(1, renamed);
  EXPECT_TRUE(all<KeepAnchor>(offered).empty());
  EXPECT_EQ(sent<wire::AnchorInstalled>(offered).at(0).second.run, RunId{7});
  EXPECT_EQ(all<Rebase>(s.step(Trigger{20, 9})).at(0).base, Base::kOldAnchor);
  EXPECT_EQ(all<KeepAnchor>(s.hear(1, renamed)).size(), 1U);
}

TEST_F(SiteRebase, AnExchangeThatHasBegunMayHaveCounted) {
  s.link_to(0, "paris", 2);
  static_cast<void>(s.hear(1, SiteHarness::start(1, 1, 2)));
  EXPECT_EQ(all<TakeSnapshot>(s.hear(1, wire::RoundSkipped{TermId{1}, RoundId{1}, "no majority"})).size(), 1U);
  static_cast<void>(s.step(Trigger{20, 9}));
  const auto back = return_to(1, wire::Counted::kYes, 1);
  EXPECT_EQ(all<Rebase>(back).at(0).base, Base::kSnapshot);
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second.samples, 12U);
}

TEST_F(SiteRebase, ALostCoordinatorStopsTheTransferOfTheAnchor) {
  s.link_to(0, "paris", 2);
  EXPECT_EQ(
      all<ReceiveAnchor>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{1}, {SiteId{0}}, kWrong})).size(),
      1U);
  EXPECT_EQ(all<StopReceiving>(s.step(Closed{LinkId{1}, unavailable("reset")})).size(), 1U);
}

TEST(SiteTrains, AnAnchorIsNotTakenWhileTheParametersMove) {
  SiteHarness s;
  s.become(1, {"paris", "tokyo"});
  const auto actions = s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{3}, {SiteId{0}}, kWrong});
  EXPECT_TRUE(all<DialPeer>(actions).empty());
  EXPECT_EQ(sent<wire::AnchorInstalled>(actions).at(0).second,
            (wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight, acceptor_of("tokyo")}));
  EXPECT_EQ(sent<wire::Ready>(s.step(Trigger{8, 4})).at(0).second.round, RoundId{1});
}

TEST(SiteRejoin, ARefusalToAMemberThatComesBackIsTriedAgain) {
  SiteHarness s;
  s.become(0, {"paris"});
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  EXPECT_TRUE(all<Failed>(s.hear(5, wire::Refuse{"a site named \"paris\" is in the swarm already"})).empty());
  EXPECT_EQ(all<DialCoordinator>(s.pass(seconds(1))).size(), 1U);
  EXPECT_TRUE(all<Failed>(s.pass(seconds(3000))).empty()) << "who has joined once trains on, come what may";
}

TEST(SiteRejoin, ASilentCoordinatorIsLostASleptOneIsNot) {
  SiteHarness s;
  s.become(0, {"paris"});
  EXPECT_GE(sent<wire::Heartbeat>(s.pass(seconds(10))).size(), 9U);
  s.now += seconds(500);  // we slept
  EXPECT_TRUE(all<CloseLink>(s.step(Tick{})).empty());
  const auto actions = s.pass(seconds(62));
  ASSERT_EQ(all<CloseLink>(actions).size(), 1U);
  EXPECT_THAT(all<CloseLink>(actions)[0].why, HasSubstr("COLLAB_LINK_GRACE"));
}

TEST(SiteRejoin, ARefusalToAMemberEndsIt) {
  SiteHarness s;
  s.become(0, {"paris"});
  EXPECT_EQ(all<Failed>(s.hear(1, wire::Refuse{"round 3: it was not ready"})).size(), 1U);
}

TEST(SiteLeave, EndsWithTheAcknowledgementACloseOrAfterFiveSeconds) {
  for (int way = 0; way < 3; ++way) {
    SiteHarness s;
    s.become(0, {"paris"});
    EXPECT_EQ(sent<wire::Leave>(s.step(Depart{"done"})).size(), 1U);
    const auto end = way == 0   ? s.hear(1, wire::LeaveAck{})
                     : way == 1 ? s.step(Closed{LinkId{1}, unavailable("reset")})
                                : s.tick(seconds(5));
    EXPECT_EQ(all<Left>(end).size(), 1U) << way;
    EXPECT_TRUE(s.hear(1, wire::LeaveAck{}).empty());
  }
}

TEST(SiteLeave, EndsAtOnceWithoutACoordinator) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  EXPECT_EQ(all<Left>(s.step(Depart{"done"})).size(), 1U);
}

TEST(SiteGarbage, FromTheCoordinatorIsNamedAndIgnored) {
  SiteHarness s;
  s.become(0, {"paris"});
  for (const wire::Message& message :
       std::vector<wire::Message>{wire::Join{}, wire::Ready{}, wire::Done{}, wire::Decline{}, wire::PeerUnreachable{},
                                  wire::Leave{}, wire::AnchorInstalled{}, wire::Hello{}, wire::FetchAnchor{},
                                  wire::AnchorMoved{}, wire::Chunk{}, wire::StatusQuery{}, wire::StatusReport{}}) {
    EXPECT_THAT(notes(s.hear(1, message)), HasSubstr("[link.not-for-a-site]"));
  }
  EXPECT_THAT(notes(s.hear(1, wire::Welcome{})), HasSubstr("had not asked"));
  EXPECT_TRUE(s.hear(1, wire::LeaveAck{}).empty());
  EXPECT_THAT(notes(s.hear(1, wire::InstallAnchor{TermId{0}, RunId{1}, RoundId{1}, {SiteId{0}}, kRight})),
              HasSubstr("[ignored]"));
}

// The first may answer after it was given up for the second: then it is the one this site is at.
TEST(SiteJoin, ADialThatSucceedsLateIsMatchedToItsCandidate) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("tokyo")}));
  const auto second = all<DialCoordinator>(s.pass(seconds(20)));
  ASSERT_FALSE(second.empty());
  EXPECT_EQ(second[0].candidate, 1U);
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}, false, 0}));
  static_cast<void>(s.step(Closed{LinkId{5}, unavailable("reset")}));
  EXPECT_EQ(all<DialCoordinator>(s.pass(seconds(5))).at(0).candidate, 1U) << "the one after it";
}

// It says how many wait there with each heartbeat. One that says nothing is left soon: to ask another costs little.
TEST(SiteJoin, AWaitingSiteStaysWhereItIsAnswered) {
  SiteHarness s;
  s.become(0, {"paris", "tokyo"});
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  for (int second = 0; second < 100; ++second) {
    const auto actions = s.pass(seconds(1));
    EXPECT_EQ(sent<wire::Inquire>(actions).size(), 1U);
    ASSERT_THAT(all<DialCoordinator>(actions), testing::IsEmpty());
    static_cast<void>(s.hear(5, wire::Leads{false, 1, RunId{3}, RoundId{0}, 1}));
  }
  const auto actions = s.pass(seconds(17));
  ASSERT_EQ(all<DialCoordinator>(actions).size(), 1U);
  EXPECT_EQ(all<DialCoordinator>(actions)[0].candidate, 1U);
}

TEST(SiteJoin, ASilentCoordinatorIsNotDialledFirst) {
  SiteHarness s;
  s.become(1, {"paris", "tokyo"});
  const auto after_silence = all<DialCoordinator>(s.pass(seconds(62)));
  ASSERT_FALSE(after_silence.empty());
  EXPECT_EQ(after_silence[0].candidate, 1U);
  SiteHarness t;
  t.become(1, {"paris", "tokyo"});
  static_cast<void>(t.step(Closed{LinkId{1}, {}}));
  const auto after_close = all<DialCoordinator>(t.pass(seconds(1)));
  ASSERT_FALSE(after_close.empty());
  EXPECT_EQ(after_close[0].candidate, 0U);  // it may be up again
}

}  // namespace
}  // namespace collab::protocol
