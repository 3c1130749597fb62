// A site's part in a round.
#include <gmock/gmock.h>

#include "core/protocol/formatting.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using H = SiteHarness;

class SiteRound : public testing::Test {
 protected:
  // Site 1 of two, ready for round 1, with a link (2) to site 0.
  SiteRound() {
    s.become(1, {"paris", "tokyo"});
    static_cast<void>(s.step(Trigger{8, 4}));
  }
  void exchange() {
    s.link_to(0, "paris", 2);
    EXPECT_EQ(all<StartExchange>(s.hear(1, H::start(1, 1, 2))).size(), 1U);
  }
  void lima_comes(std::uint64_t link) {
    static_cast<void>(s.hear(1, H::roster({"paris", "tokyo", "lima"})));
    s.link_to(2, "lima", link);
  }
  void complete() {
    exchange();
    static_cast<void>(s.step(ExchangeComplete{RoundId{1}, AttemptId{1}, {kRight, kRight}}));
  }
  const wire::Commit commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}}};
  SiteHarness s;
};

TEST(SiteTrigger, IsTheNextRoundWithTheStateItHolds) {
  SiteHarness s;
  s.become(0, {"paris"});
  EXPECT_EQ(sent<wire::Ready>(s.step(Trigger{16, 4}))[0].second, (wire::Ready{RoundId{1}, 16, 16, 4, kRight}));
  EXPECT_THAT(notes(s.step(Trigger{16, 4})), HasSubstr("while a round is under way"));
}

// Its Done may have crossed the request to leave, and the others may count on it.
TEST_F(SiteRound, ALeavingSiteAppliesNothingAnyMore) {
  complete();
  EXPECT_EQ(all<CancelExchange>(s.step(Depart{"trained to the end"})).size(), 1U);
  const auto actions = s.hear(1, commit);
  EXPECT_TRUE(all<ApplyCommit>(actions).empty());
  EXPECT_TRUE(all<Failed>(actions).empty());
  EXPECT_EQ(all<Left>(s.hear(1, wire::LeaveAck{})).size(), 1U);
}

TEST(SiteTrigger, AloneTheExchangeNeedsNoLink) {
  SiteHarness s;
  s.become(0, {"paris"});
  static_cast<void>(s.step(Trigger{8, 4}));
  const auto start = all<StartExchange>(s.hear(1, H::start(1, 1, 1)));
  ASSERT_EQ(start.size(), 1U);
  EXPECT_EQ(start[0].links, (std::vector<LinkId>{LinkId{0}}));
}

TEST_F(SiteRound, TheHigherSiteDialsThenTheExchangeStarts) {
  EXPECT_EQ(all<DialPeer>(s.hear(1, H::start(1, 1, 2)))[0].site, SiteId{0});
  static_cast<void>(s.step(PeerConnected{SiteId{0}, LinkId{2}}));
  const auto actions = s.hear(2, wire::Hello{"swarm", TermId{1}, SiteId{0}, "paris"});
  EXPECT_EQ(sent<wire::Heartbeat>(actions)[0].first, LinkId{2});
  EXPECT_EQ(all<StartExchange>(actions)[0].links, (std::vector<LinkId>{LinkId{2}, LinkId{0}}));
}

TEST(SiteRoundLower, TheLowerSiteStartsOnceItIsDialledAndTheLinkIsConfirmed) {
  SiteHarness s;
  s.become(0, {"paris", "tokyo"});
  static_cast<void>(s.step(Trigger{8, 4}));
  EXPECT_TRUE(all<DialPeer>(s.hear(1, H::start(1, 1, 2))).empty());
  EXPECT_TRUE(all<StartExchange>(s.hear(2, wire::Hello{"swarm", TermId{1}, SiteId{1}, "tokyo"})).empty());
  EXPECT_EQ(all<StartExchange>(s.hear(2, wire::Heartbeat{0, true})).size(), 1U);
}

TEST(SiteRoundLower, TheLowerSiteDialsIfItCannotBeDialled) {
  SiteHarness s;
  s.become(0, {"paris", "tokyo"}, "paris");
  static_cast<void>(s.step(Trigger{8, 4}));
  static_cast<void>(s.step(DialFailed{SiteId{1}, unavailable("refused")}));
  static_cast<void>(s.hear(1, H::start(1, 1, 2)));
  EXPECT_EQ(all<DialPeer>(s.pass(seconds(1))).size(), 1U);
}

// Where the higher cannot reach the lower, the lower may reach the higher.
TEST(SiteRoundLower, TheLowerSiteDialsTooAfterAWhile) {
  SiteHarness s;
  s.become(0, {"paris", "tokyo"});
  static_cast<void>(s.step(Trigger{8, 4}));
  EXPECT_TRUE(all<DialPeer>(s.hear(1, H::start(1, 1, 2))).empty());
  EXPECT_TRUE(all<DialPeer>(s.pass(seconds(2))).empty());
  const auto dials = all<DialPeer>(s.pass(seconds(2)));
  ASSERT_EQ(dials.size(), 1U);
  EXPECT_EQ(dials[0].site, SiteId{1});
}

TEST_F(SiteRound, ARoundIsDoneCommittedAndAppliedAndTheNextFollows) {
  exchange();
  const auto done = sent<wire::Done>(s.step(ExchangeComplete{RoundId{1}, AttemptId{1}, {kRight, kWrong}}));
  EXPECT_EQ(done[0].second, (wire::Done{TermId{1}, RoundId{1}, AttemptId{1}, {kRight, kWrong}}));
  const auto apply = all<ApplyCommit>(s.hear(1, commit));
  ASSERT_EQ(apply.size(), 1U);
  EXPECT_EQ(apply[0].base, Base::kParameters);
  const auto applied = s.step(Applied{RoundId{1}, kWrong});
  const auto over = all<RoundDone>(applied);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].members, (std::vector<std::string>{"paris", "tokyo"}));
  EXPECT_EQ(over[0].contributors, (std::vector<std::string>{"paris", "tokyo"}));
  EXPECT_EQ(sent<wire::AnchorInstalled>(applied)[0].second,
            (wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong, acceptor_of("tokyo")}));
  const auto next = sent<wire::Ready>(s.step(Trigger{9, 5}));
  EXPECT_EQ(next[0].second.round, RoundId{2});
  EXPECT_EQ(next[0].second.state, kWrong);
}

TEST_F(SiteRound, TheCommitTellsThePeriodToTheNextRound) {
  complete();
  wire::Commit agreed = commit;
  agreed.period = 5;
  static_cast<void>(s.hear(1, agreed));
  EXPECT_EQ(all<RoundDone>(s.step(Applied{RoundId{1}, kRight})).at(0).period, 5U);
}

TEST_F(SiteRound, ARoundAppliedWhileItJoinsIsReported) {
  complete();
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(70)));  // it trains on
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  static_cast<void>(s.hear(5, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  EXPECT_THAT(notes(s.hear(5, commit)), HasSubstr("it is applied at the next trigger"));
  static_cast<void>(s.step(Closed{LinkId{5}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  const auto first = sent<wire::Join>(s.step(CoordinatorConnected{LinkId{6}}));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].second.report.record.anchor.round, RoundId{0});
  ASSERT_EQ(all<ApplyCommit>(s.step(Trigger{20, 9})).size(), 1U);
  const auto again = sent<wire::Join>(s.step(Applied{RoundId{1}, kRight}));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].first, LinkId{6});
  EXPECT_EQ(again[0].second.report.record.anchor.round, RoundId{1});
}

// It is done with an attempt and has trained on; another leader, which has not heard of that one, begins another, and a
// third one hears of the first again and commits it. What was trained in between is told from it.
TEST_F(SiteRound, WorkThatMayYetBeCommittedIsNotContributedAgain) {
  complete();
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  EXPECT_EQ(all<TakeSnapshot>(s.pass(seconds(70))).size(), 1U);
  const auto led_by = [this](std::uint64_t link, std::uint64_t term, const wire::InstallAnchor& install) {
    static_cast<void>(s.pass(seconds(1)));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{link}}));
    static_cast<void>(s.hear(link, wire::Welcome{TermId{term}, SiteId{1}, 1000, 60000}));
    wire::Roster roster = H::roster({"paris", "tokyo"});
    roster.term = TermId{term};
    static_cast<void>(s.hear(link, roster));
    static_cast<void>(s.hear(link, install));
    return s.step(AnchorInPlace{install.run, install.round, install.digest});
  };
  static_cast<void>(led_by(6, 3, {TermId{3}, RunId{7}, RoundId{0}, {SiteId{1}}, kRight, wire::Counted::kNo, {}}));
  const auto ready = sent<wire::Ready>(s.step(Trigger{20, 9}));
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(std::tuple(ready[0].second.weight, ready[0].second.samples, ready[0].second.steps), std::tuple(0, 0, 0));
  wire::StartAttempt another = H::start(1, 2 << 16, 2);
  another.term = TermId{3};
  another.participants[1].weight = 0;
  EXPECT_EQ(all<StartExchange>(s.hear(6, another)).size(), 1U);
  static_cast<void>(s.step(Closed{LinkId{6}, unavailable("reset")}));
  wire::InstallAnchor counted{TermId{4}, RunId{7}, RoundId{1}, {SiteId{0}}, kWrong, wire::Counted::kYes};
  counted.attempt = AttemptId{1};
  const auto back = led_by(7, 4, counted);
  ASSERT_EQ(all<Rebase>(back).size(), 1U);
  EXPECT_EQ(all<Rebase>(back)[0].base, Base::kSnapshot);
  ASSERT_EQ(sent<wire::Ready>(back).size(), 1U);
  EXPECT_EQ(sent<wire::Ready>(back)[0].second.samples, 12U) << "20 were trained, 8 of them are in the commit";
}

TEST_F(SiteRound, AttemptsOfAnOlderTermOrAnotherModelAreIgnored) {
  exchange();
  EXPECT_THAT(notes(s.hear(1, H::start(1, 1, 2))), HasSubstr("a later attempt is known"));
  EXPECT_THAT(notes(s.hear(1, H::start(5, 2, 2))), HasSubstr("this site is at round 0"));
  wire::StartAttempt start = H::start(1, 2, 2);
  start.term = TermId{0};
  EXPECT_THAT(notes(s.hear(1, start)), HasSubstr("an older term"));
  start = H::start(1, 2, 1);
  EXPECT_THAT(notes(s.hear(1, start)), HasSubstr("no part in it"));
}

// A promise may be far above the term before, and the numbers that a term's attempts begin with wrap around.
TEST_F(SiteRound, AnAttemptOfANewerTermIsTakenWhateverItsNumber) {
  constexpr std::uint32_t kLater = 2 << 16;
  s.link_to(0, "paris", 2);
  ASSERT_EQ(all<StartExchange>(s.hear(1, H::start(1, kLater, 2))).size(), 1U);
  static_cast<void>(s.step(ExchangeComplete{RoundId{1}, AttemptId{kLater}, {kRight, kRight}}));
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  static_cast<void>(s.hear(5, wire::Welcome{TermId{32769}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(5, wire::InstallAnchor{TermId{32769}, RunId{7}, RoundId{0}, {SiteId{1}}, kRight}));
  static_cast<void>(s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight}));
  wire::StartAttempt start = H::start(1, 1, 2);
  start.term = TermId{32769};
  EXPECT_EQ(all<StartExchange>(s.hear(5, start)).size(), 1U);
}

TEST(SiteTraining, CommitsNeedATrigger) {
  SiteHarness s;
  s.become(1, {"paris", "tokyo"});
  EXPECT_EQ(all<CloseLink>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {}})).size(), 1U);
}

TEST_F(SiteRound, ANewAttemptReplacesTheOld) {
  complete();
  const auto actions = s.hear(1, H::start(1, 2, 2));
  EXPECT_EQ(all<CancelExchange>(actions).size(), 1U);
  EXPECT_EQ(all<StartExchange>(actions)[0].start.attempt, AttemptId{2});
  EXPECT_TRUE(s.step(ExchangeComplete{RoundId{1}, AttemptId{1}, {}}).empty());
}

// As told in Ready: from which attempt on what was exchanged still stands.
TEST_F(SiteRound, TheExchangeStandsWhenTheCoordinatorIsLost) {
  exchange();
  static_cast<void>(s.hear(1, H::start(1, 2, 2)));
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  static_cast<void>(s.hear(5, wire::Welcome{TermId{2}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(5, wire::InstallAnchor{TermId{2}, RunId{7}, RoundId{0}, {SiteId{1}}, kRight}));
  const auto ready = sent<wire::Ready>(s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight}));
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].second.since, AttemptId{1});
}

TEST_F(SiteRound, TheExchangeDoesNotStandUnderAnotherNumber) {
  exchange();
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  static_cast<void>(s.hear(5, wire::Welcome{TermId{2}, SiteId{4}, 1000, 60000}));
  static_cast<void>(s.hear(5, wire::InstallAnchor{TermId{2}, RunId{7}, RoundId{0}, {SiteId{4}}, kRight}));
  EXPECT_EQ(sent<wire::Ready>(s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight})).at(0).second.since, AttemptId{0});
}

TEST_F(SiteRound, AnAbsentSiteIsNeitherLinkedNorAsked) {
  s.link_to(0, "paris", 2);
  wire::StartAttempt start = H::start(1, 2, 2);
  start.participants.push_back({SiteId{2}, "lima", 1.0, AttemptId{1}, false});
  const auto exchanges = all<StartExchange>(s.hear(1, start));
  ASSERT_EQ(exchanges.size(), 1U);
  EXPECT_EQ(exchanges[0].links, (std::vector<LinkId>{LinkId{2}, LinkId{0}, LinkId{0}}));
  const auto actions = s.step(ExchangeFailed{RoundId{1}, AttemptId{2}, SiteId{2}, "not here whole"});
  EXPECT_EQ(sent<wire::PeerUnreachable>(actions).at(0).second.peer, SiteId{2});
}

TEST_F(SiteRound, MissingPartsOfAnAbsentSiteAreReportedThoughItIsBack) {
  s.link_to(0, "paris", 2);
  lima_comes(3);
  wire::StartAttempt start = H::start(1, 2, 2);
  start.participants.push_back({SiteId{2}, "lima", 1.0, AttemptId{1}, false});
  ASSERT_EQ(all<StartExchange>(s.hear(1, start)).size(), 1U);
  const auto actions = s.step(ExchangeFailed{RoundId{1}, AttemptId{2}, SiteId{2}, "not here whole"});
  ASSERT_EQ(sent<wire::PeerUnreachable>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::PeerUnreachable>(actions)[0].second.peer, SiteId{2});
  EXPECT_TRUE(all<CloseLink>(actions).empty()) << "its link is a new one";
}

TEST_F(SiteRound, AStrangerThatSpoilsAnAttemptLosesItsLink) {
  exchange();
  lima_comes(7);
  const auto actions = s.step(ExchangeFailed{RoundId{1}, AttemptId{1}, SiteId{2}, "a chunk was damaged"});
  EXPECT_EQ(all<CloseLink>(actions).at(0).link, LinkId{7});
  ASSERT_EQ(sent<wire::PeerUnreachable>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::PeerUnreachable>(actions)[0].second.peer, SiteId{2});
}

TEST_F(SiteRound, AnUnfitDeltaIsDeclinedAndTheAnchorTaken) {
  exchange();
  const auto actions = s.step(ContributionUnfit{RoundId{1}, AttemptId{1}, "NaN in wte.weight"});
  EXPECT_EQ(sent<wire::Decline>(actions)[0].second, (wire::Decline{RoundId{1}, AttemptId{1}, "NaN in wte.weight"}));
  EXPECT_EQ(all<CancelExchange>(actions).size(), 1U);
  wire::StartAttempt again = H::start(1, 2, 2);
  again.participants[1].weight = 0;
  EXPECT_EQ(all<StartExchange>(s.hear(1, again)).size(), 1U);
  static_cast<void>(s.step(ExchangeComplete{RoundId{1}, AttemptId{2}, {kRight, kRight}}));
  const auto apply =
      all<ApplyCommit>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{2}, {SiteId{0}}}));
  EXPECT_EQ(apply.at(0).base, Base::kUnfit);
}

// The anchor is taken outright: nothing is left that a later anchor could be a part of.
TEST_F(SiteRound, AnUnfitDeltaIsNotSubtractedFromTheParametersAgain) {
  exchange();
  static_cast<void>(s.step(ContributionUnfit{RoundId{1}, AttemptId{1}, "NaN in wte.weight"}));
  EXPECT_EQ(all<StartExchange>(s.hear(1, H::start(1, 2, 2))).size(), 1U) << "the leader has not heard of it yet";
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  const auto skipped = s.pass(seconds(61));
  ASSERT_EQ(all<Rebase>(skipped).size(), 1U);
  EXPECT_EQ(all<Rebase>(skipped)[0].base, Base::kUnfit);
  EXPECT_TRUE(all<TakeSnapshot>(skipped).empty());
  static_cast<void>(s.step(DialFailed{std::nullopt, unavailable("refused")}));
  static_cast<void>(s.pass(seconds(6)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{6}}));
  static_cast<void>(s.hear(6, wire::Welcome{TermId{3}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.step(Trigger{25, 11}));
  static_cast<void>(s.hear(
      6, wire::InstallAnchor{TermId{3}, RunId{7}, RoundId{1}, {SiteId{0}}, kWrong, wire::Counted::kUnknown, {}}));
  const auto back = s.step(AnchorInPlace{RunId{7}, RoundId{1}, kWrong});
  ASSERT_EQ(all<Rebase>(back).size(), 1U);
  EXPECT_EQ(all<Rebase>(back)[0].base, Base::kOldAnchor);
  ASSERT_EQ(sent<wire::Ready>(back).size(), 1U);
  EXPECT_EQ(sent<wire::Ready>(back)[0].second.samples, 17U) << "25 were trained, 8 of them are given up";
}

TEST_F(SiteRound, AnExchangeThatFailsIsReported) {
  exchange();
  const auto actions = s.step(ExchangeFailed{RoundId{1}, AttemptId{1}, SiteId{0}, "it came twice"});
  EXPECT_EQ(sent<wire::PeerUnreachable>(actions)[0].second,
            (wire::PeerUnreachable{RoundId{1}, AttemptId{1}, SiteId{0}, "it came twice"}));
  EXPECT_EQ(all<CloseLink>(actions).at(0).link, LinkId{2}) << "what was sent over it does not count as delivered";
  EXPECT_EQ(all<CancelExchange>(actions).size(), 1U);
}

TEST_F(SiteRound, ALostPeerLinkIsReported) {
  exchange();
  const auto during = s.step(Closed{LinkId{2}, unavailable("reset")});
  EXPECT_EQ(sent<wire::PeerUnreachable>(during)[0].second.peer, SiteId{0});
  EXPECT_EQ(all<CancelExchange>(during).size(), 1U);
}

// The other may wait for a mean that was on its way: nobody sends it over another link.
TEST_F(SiteRound, APeerLinkLostAfterThisSiteIsDoneIsReportedAndTheMeanKept) {
  complete();
  const auto actions = s.step(Closed{LinkId{2}, unavailable("reset")});
  ASSERT_EQ(sent<wire::PeerUnreachable>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::PeerUnreachable>(actions)[0].second,
            (wire::PeerUnreachable{RoundId{1}, AttemptId{1}, SiteId{0}, "after this site was done: reset"}));
  EXPECT_TRUE(all<CancelExchange>(actions).empty());
  EXPECT_EQ(all<ApplyCommit>(s.hear(1, commit)).size(), 1U) << "the others were done as well";
}

TEST_F(SiteRound, ALinkThatNoExchangeUsesIsNotReported) {
  lima_comes(7);
  complete();
  EXPECT_TRUE(sent<wire::PeerUnreachable>(s.step(Closed{LinkId{7}, unavailable("reset")})).empty());
}

TEST_F(SiteRound, ALinkThatCannotBeMadeIsReportedInTime) {
  static_cast<void>(s.hear(1, H::start(1, 1, 2)));
  static_cast<void>(s.step(DialFailed{SiteId{0}, unavailable("connection refused")}));
  const auto actions = s.pass(seconds(21));
  EXPECT_GE(all<DialPeer>(actions).size(), 1U);
  const auto reports = sent<wire::PeerUnreachable>(actions);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].second.reason, "no link within 20 s, last: no connection within 15 s");
}

TEST_F(SiteRound, NothingIsExchangedIfNoSiteHasAWeight) {
  wire::StartAttempt idle = H::start(1, 1, 2);
  idle.slices.clear();
  for (wire::Participant& p : idle.participants) p.weight = 0;
  const auto actions = s.hear(1, idle);
  EXPECT_TRUE(all<StartExchange>(actions).empty());
  EXPECT_EQ(sent<wire::Done>(actions).at(0).second, (wire::Done{TermId{1}, RoundId{1}, AttemptId{1}, {}}));
  const auto apply = all<ApplyCommit>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {}}));
  ASSERT_EQ(apply.size(), 1U);
  EXPECT_EQ(apply[0].base, Base::kOldAnchor);
  EXPECT_EQ(all<RoundDone>(s.step(Applied{RoundId{1}, kRight})).size(), 1U);
  EXPECT_EQ(sent<wire::Ready>(s.step(Trigger{9, 5})).at(0).second.samples, 9U) << "nothing was counted";
}

TEST_F(SiteRound, ASkippedRoundAnswersTheTriggerAndNothingIsLost) {
  const auto actions = s.hear(1, wire::RoundSkipped{TermId{1}, RoundId{1}, "1 of the 2 sites"});
  ASSERT_EQ(all<RoundSkipped>(actions).size(), 1U);
  EXPECT_THAT(notes(actions), HasSubstr("[no-quorum] round 1 cannot run yet: 1 of the 2 sites"));
  EXPECT_EQ(sent<wire::Ready>(s.step(Trigger{20, 9})).at(0).second, (wire::Ready{RoundId{1}, 20, 20, 9, kRight}));
}

// Its Ready had crossed the word that no round is formed. Without an answer the others would wait for it.
TEST_F(SiteRound, AnAttemptWhileItIsNotReadyClosesTheLinkToTheLeader) {
  static_cast<void>(s.hear(1, wire::RoundSkipped{TermId{1}, RoundId{1}, "1 of the 2 sites"}));
  const auto actions = s.hear(1, H::start(1, 1, 2));
  EXPECT_TRUE(all<StartExchange>(actions).empty());
  EXPECT_THAT(notes(actions), HasSubstr("this site is not ready [round.start-ignored]"));
  ASSERT_EQ(all<CloseLink>(actions).size(), 1U);
  EXPECT_EQ(all<CloseLink>(actions)[0].link, LinkId{1});
}

// By the next candidate of its list the script may have ended, and its Leave would reach nobody.
TEST_F(SiteRound, ALeaderThatStartedTooEarlyIsDialledAgainAtOnce) {
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(1)));
  CoordinatorConnected second{LinkId{5}};
  second.candidate = 1;
  static_cast<void>(s.step(second));
  static_cast<void>(s.hear(5, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(5, wire::RoundSkipped{TermId{1}, RoundId{1}, "1 of the 2 sites"}));
  EXPECT_EQ(all<CloseLink>(s.hear(5, H::start(1, 1, 2))).size(), 1U);
  const auto dialled = all<DialCoordinator>(s.tick(Duration{}));
  ASSERT_EQ(dialled.size(), 1U);
  EXPECT_EQ(dialled[0].candidate, 1U);
}

// Its Leave waits for the disk: with the link it would be lost, and the others would miss a voter for ever.
TEST_F(SiteRound, AnAttemptWhileItLeavesIsIgnoredAndItsLeaveIsSent) {
  s.writes_wait = true;
  const auto written = all<Persist>(s.step(Depart{"asked to end"}));
  ASSERT_EQ(written.size(), 1U);
  EXPECT_TRUE(all<CloseLink>(s.hear(1, H::start(1, 1, 2))).empty());
  EXPECT_EQ(sent<wire::Leave>(s.step(Persisted{written[0].number, {}})).size(), 1U);
}

TEST_F(SiteRound, AnOlderAttemptEndsNoLink) {
  static_cast<void>(s.hear(1, H::start(1, 2, 2)));
  EXPECT_TRUE(all<CloseLink>(s.hear(1, H::start(1, 1, 2))).empty());
}

TEST_F(SiteRound, ALostCoordinatorDoesNotBlockBeyondTheGrace) {
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  EXPECT_TRUE(all<RoundSkipped>(s.pass(seconds(59))).empty());
  EXPECT_EQ(all<RoundSkipped>(s.pass(seconds(2))).size(), 1U);
  EXPECT_EQ(all<RoundSkipped>(s.step(Trigger{20, 9})).size(), 1U) << "known to be lost: no wait at all";
}

TEST_F(SiteRound, AContributionThatMayBeCommittedIsSetAsideBeforeTrainingOn) {
  complete();
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  const auto skipped = s.pass(seconds(61));
  EXPECT_EQ(all<TakeSnapshot>(skipped).size(), 1U);
  EXPECT_TRUE(all<CancelExchange>(skipped).empty()) << "a successor may commit it";
  static_cast<void>(s.step(DialFailed{std::nullopt, unavailable("refused")}));
  static_cast<void>(s.pass(seconds(6)));
  const auto join = sent<wire::Join>(s.step(CoordinatorConnected{LinkId{5}}));
  ASSERT_EQ(join.size(), 1U);
  EXPECT_TRUE(join[0].second.report.training);
  ASSERT_EQ(join[0].second.report.record.proposals.size(), 1U);
  EXPECT_TRUE(join[0].second.report.record.proposals[0].accepted);
  static_cast<void>(s.hear(5, wire::Welcome{TermId{2}, SiteId{1}, 1000, 60000}));
  EXPECT_TRUE(
      all<ApplyCommit>(s.hear(5, wire::Commit{TermId{2}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}}}))
          .empty())
      << "the parameters move";
  const auto apply = all<ApplyCommit>(s.step(Trigger{20, 9}));
  ASSERT_EQ(apply.size(), 1U);
  EXPECT_EQ(apply[0].base, Base::kSnapshot);
  const auto on = s.step(Applied{RoundId{1}, kWrong});
  EXPECT_TRUE(all<RoundDone>(on).empty()) << "its trigger is for the round that the others make now";
  EXPECT_EQ(sent<wire::Ready>(on).at(0).second, (wire::Ready{RoundId{2}, 12, 12, 5, kWrong}));
  static_cast<void>(s.hear(5, H::roster({"paris", "tokyo"})));
  wire::StartAttempt next = H::start(2, 2, 2);
  next.term = TermId{2};
  EXPECT_EQ(all<StartExchange>(s.hear(5, next)).size(), 1U);
  static_cast<void>(s.step(ExchangeComplete{RoundId{2}, AttemptId{2}, {kRight, kRight}}));
  const auto last =
      all<ApplyCommit>(s.hear(5, wire::Commit{TermId{2}, RunId{7}, RoundId{2}, AttemptId{2}, {SiteId{0}, SiteId{1}}}));
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].base, Base::kParameters);
  const auto done = all<RoundDone>(s.step(Applied{RoundId{2}, kRight}));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(std::pair(done[0].round, done[0].samples), std::pair(RoundId{2}, std::uint64_t{20}));
}

TEST_F(SiteRound, AnOwedCommitEndsTheTriggerIfNothingWasTrainedSince) {
  complete();
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  static_cast<void>(s.pass(seconds(70)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  static_cast<void>(s.hear(5, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(5, commit));
  ASSERT_EQ(all<ApplyCommit>(s.step(Trigger{8, 4})).size(), 1U);
  const auto over = s.step(Applied{RoundId{1}, kRight});
  EXPECT_EQ(all<RoundDone>(over).size(), 1U);
  EXPECT_TRUE(sent<wire::Ready>(over).empty());
}

// It owes the round's commit to its training when its leader is lost, and asks the next one to be let in; which knows
// of the anchor before, and waits for its word.
class SiteOwes : public SiteRound {
 protected:
  SiteOwes() {
    complete();
    static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
    static_cast<void>(s.pass(seconds(61)));
    static_cast<void>(s.step(DialFailed{std::nullopt, unavailable("refused")}));
    static_cast<void>(s.pass(seconds(6)));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
    static_cast<void>(committed(5, 2));
    static_cast<void>(s.step(Closed{LinkId{5}, unavailable("reset")}));
    static_cast<void>(s.pass(seconds(1)));
    EXPECT_EQ(sent<wire::Join>(s.step(CoordinatorConnected{LinkId{6}})).at(0).second.offer.round, RoundId{0});
    EXPECT_EQ(all<ApplyCommit>(s.step(Trigger{20, 9})).size(), 1U);
  }
  H::Actions committed(std::uint64_t link, std::uint64_t term) {
    static_cast<void>(s.hear(link, wire::Welcome{TermId{term}, SiteId{1}, 1000, 60000}));
    return s.hear(link, wire::Commit{TermId{term}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}}});
  }
};

TEST_F(SiteOwes, ConfirmsARoundOnceItIsApplied) {
  const auto again = committed(6, 3);
  EXPECT_TRUE(all<Failed>(again).empty());
  EXPECT_TRUE(sent<wire::AnchorInstalled>(again).empty());
  EXPECT_EQ(sent<wire::AnchorInstalled>(s.step(Applied{RoundId{1}, kWrong})).size(), 1U);
}

TEST_F(SiteOwes, ConfirmsARoundAppliedMeanwhile) {
  EXPECT_TRUE(sent<wire::Ready>(s.step(Applied{RoundId{1}, kWrong})).empty()) << "nobody has let it in";
  EXPECT_EQ(sent<wire::Ready>(s.hear(6, wire::Welcome{TermId{3}, SiteId{1}, 1000, 60000})).size(), 1U);
  const auto actions = committed(6, 3);
  const auto confirmed = sent<wire::AnchorInstalled>(actions);
  ASSERT_EQ(confirmed.size(), 1U);
  EXPECT_EQ(confirmed[0].second.round, RoundId{1});
  EXPECT_EQ(confirmed[0].second.digest, kWrong);
  const auto ready = sent<wire::Ready>(actions);
  ASSERT_EQ(ready.size(), 1U) << "the one before came to a leader for which it was a round behind";
  EXPECT_EQ(ready[0].second.round, RoundId{2});
}

TEST_F(SiteRound, ACommitOfAnAttemptItHasNotDoneEndsTheLinkNotTheSite) {
  exchange();
  const auto actions = s.hear(1, commit);
  EXPECT_TRUE(all<Failed>(actions).empty());
  ASSERT_EQ(all<CloseLink>(actions).size(), 1U);
  EXPECT_THAT(notes(actions), HasSubstr("committed attempt 1 of round 1, which this site has not completed"));
  EXPECT_THAT(notes(actions), HasSubstr("[round.disagreement]"));
  const auto dials = all<DialCoordinator>(s.pass(seconds(1)));
  ASSERT_EQ(dials.size(), 1U);
  EXPECT_EQ(dials[0].candidate, 1U) << "the one after it";
}

TEST_F(SiteRound, ACommitOfALaterRoundEndsTheLinkAndOfAnEarlierOneIsIgnored) {
  complete();
  EXPECT_TRUE(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{0}, AttemptId{0}, {}}).empty());
  EXPECT_EQ(all<CloseLink>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{3}, AttemptId{1}, {SiteId{0}}})).size(),
            1U);
}

TEST_F(SiteRound, ARepairKeepsTheTriggerAndSaysReadyAgain) {
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, kWrong}));
  s.link_to(0, "paris", 2);
  const auto actions = s.step(AnchorInPlace{RunId{7}, RoundId{0}, kWrong});
  ASSERT_EQ(sent<wire::Ready>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::Ready>(actions)[0].second.weight, 8);
  EXPECT_EQ(sent<wire::Ready>(actions)[0].second.state, kWrong);
}

TEST_F(SiteRound, AWaitIsExplained) {
  EXPECT_THAT(s.site.waiting_for(s.now), HasSubstr("round 1: waiting until paris is ready too"));
  static_cast<void>(s.hear(1, H::start(1, 1, 2)));
  EXPECT_THAT(s.site.waiting_for(s.now), HasSubstr("waiting for a link to paris"));
  s.link_to(0, "paris", 2);
  EXPECT_THAT(s.site.waiting_for(s.now), HasSubstr("exchanging with paris"));
}

TEST_F(SiteRound, NoCallWaitsForeverEvenIfTheCoordinatorForgets) {
  std::vector<RoundSkipped> skipped;
  for (int i = 0; i < 12000 && skipped.empty(); ++i) {
    static_cast<void>(s.hear(1, wire::Heartbeat{}));
    skipped = all<RoundSkipped>(s.pass(seconds(1)));
  }
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_THAT(skipped[0].reason, HasSubstr("waiting until paris is ready too"));
}

// Its leader has stepped down, and a candidate lets nobody in until others come: that one says who, and what to do.
TEST(SiteWithoutALeader, SkipsARoundWithTheReasonOfItsCandidate) {
  H s;
  s.become(1, {"paris", "tokyo"});
  static_cast<void>(s.step(Closed{LinkId{1}, {}}));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{2}}));
  static_cast<void>(s.hear(2, wire::Notice{std::string(kWait), "missing: paris; collab forget paris"}));
  for (int second = 0; second < 70; ++second) {
    static_cast<void>(s.hear(2, wire::Heartbeat{}));
    static_cast<void>(s.pass(seconds(1)));
  }
  const auto skipped = all<RoundSkipped>(s.step(Trigger{8, 4}));
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_EQ(skipped[0].reason, "missing: paris; collab forget paris");
  static_cast<void>(s.step(Closed{LinkId{2}, unavailable("reset")}));
  const auto nobody = all<RoundSkipped>(s.step(Trigger{8, 4}));
  ASSERT_EQ(nobody.size(), 1U);
  EXPECT_THAT(nobody[0].reason, HasSubstr("no coordinator at "));
  EXPECT_THAT(nobody[0].reason, HasSubstr("reset"));
}

}  // namespace
}  // namespace collab::protocol
