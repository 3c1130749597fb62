// What a leader takes over, what it commits in place of the leader before, and when it no longer leads.
#include <gmock/gmock.h>

#include "core/wire/limits.h"
#include "tests/unit/protocol/election_world.h"

namespace collab::protocol {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using H = CoordinatorHarness;

const std::vector<Digest> kMean{{5, 5}, {6, 6}, {7, 7}};

// An attempt of all three at the round after the anchor, under term 1.
wire::StartAttempt attempt() { return SiteHarness::start(5, 1, 3); }

wire::Join knows(wire::Join join, const wire::StartAttempt& start, bool accepted) {
  join.report.record.proposals.push_back({start, accepted, accepted ? kMean : std::vector<Digest>{}});
  join.report.holds_mean = accepted;
  return join;
}

class Lead : public testing::Test {
 protected:
  Lead() { predecessor(attempt()); }
  static CoordinatorConfig config() {
    CoordinatorConfig config = H::defaults();
    config.fresh_run = RunId{70};
    return config;
  }
  // Led under term 1, and formed that.
  void predecessor(const wire::StartAttempt& start) {
    const wire::InstallAnchor install{TermId{1},
                                      kAnchor.run,
                                      kAnchor.round,
                                      {SiteId{0}},
                                      kAnchor.digest,
                                      wire::Counted::kNo,
                                      voters_of({"paris", "tokyo", "lima"})};
    c.invariants.coordinator_step("predecessor", Tick{}, {Send{LinkId{1}, install}, Send{LinkId{1}, start}});
  }
  // paris and tokyo have elected it; what it does then.
  H::Actions elected() {
    static_cast<void>(c.come(1, voter("paris")));
    return c.come(2, voter("tokyo"));
  }
  // All sites that were told to install the anchor hold it.
  void installed(const H::Actions& actions) {
    for (const auto& [link, install] : sent<wire::InstallAnchor>(actions)) {
      static_cast<void>(c.hear(link.value, wire::AnchorInstalled{install.run, install.round, install.digest}));
    }
  }
  static wire::Ready ready(std::uint64_t round = 5) { return H::ready(round); }

  H c{config()};
};

// ---- what it takes over ----------------------------------------------------------------------------

TEST_F(Lead, TheAnchorIsWhatItsAcceptorsReport) {
  static_cast<void>(c.come(1, voter("paris")));
  for (std::uint64_t link = 11; link <= 13; ++link) {
    wire::Join stranger = join_of("stranger" + std::to_string(link));
    stranger.offer = {kAnchor.run, kAnchor.round, kWrong};
    static_cast<void>(c.come(link, stranger));
  }
  const auto installs = sent<wire::InstallAnchor>(c.come(2, voter("tokyo")));
  ASSERT_FALSE(installs.empty());
  for (const auto& [link, install] : installs) EXPECT_EQ(install.digest, kAnchor.digest) << link.value;
}

TEST_F(Lead, ANewLeaderContinuesFromTheNewestAnchorAndItsMembership) {
  wire::Join paris = voter("paris", 3);
  paris.report.record.voters[1].site = SiteId{4};
  paris.report.record.voters[2].site = SiteId{5};
  wire::Join tokyo = voter("tokyo", 6);
  tokyo.report.record.voters = paris.report.record.voters;
  static_cast<void>(c.come(1, paris));
  const auto actions = c.come(2, tokyo);
  const auto welcomes = sent<wire::Welcome>(actions);
  ASSERT_EQ(welcomes.size(), 2U) << notes(actions);
  EXPECT_EQ(welcomes[0].second, (wire::Welcome{TermId{7}, SiteId{0}, 1000, 60000}));
  EXPECT_EQ(welcomes[1].second.site, SiteId{4}) << "their numbers are those of the membership";
  const auto installs = sent<wire::InstallAnchor>(actions);
  ASSERT_EQ(installs.size(), 2U);
  EXPECT_EQ(installs[0].second,
            (wire::InstallAnchor{
                TermId{7}, RunId{7}, RoundId{4}, {SiteId{0}}, kRight, wire::Counted::kNo, paris.report.record.voters}));
  EXPECT_THAT(notes(actions),
              HasSubstr("[coordinator] this coordinator leads term 7, elected by 2 sites, at run 7 round 4"));
  installed(actions);
  static_cast<void>(c.hear(1, ready()));
  const auto starts = sent<wire::StartAttempt>(c.hear(2, ready()));
  ASSERT_EQ(starts.size(), 2U) << "two of three are a majority";
  EXPECT_EQ(starts[0].second.term, TermId{7});
  EXPECT_EQ(starts[0].second.attempt, AttemptId{(6U << 16) + 1}) << "numbered apart from those of other terms";
  EXPECT_EQ(starts[0].second.generation, 1U);
  EXPECT_EQ(starts[0].second.fingerprint, kModel);
  EXPECT_EQ(starts[0].second.voters.size(), 2U) << "the membership of the round to come";
}

TEST_F(Lead, NoSiteIsAMemberBeforeMostHaveAccepted) {
  c.no_accept = {2};
  EXPECT_THAT(sent<wire::Welcome>(elected()), IsEmpty());
  EXPECT_EQ(c.coordinator.members(), 0U);
  EXPECT_THAT(c.coordinator.status_json(c.now),
              AllOf(HasSubstr(R"("run":7,"round":4)"), HasSubstr(R"("leads":false,"voters":["paris","tokyo","lima"])"),
                    HasSubstr(R"("applicants":["paris","tokyo"])")))
      << "as far as those who wait know";
  EXPECT_EQ(sent<wire::Welcome>(c.hear(2, wire::Accepted{TermId{2}})).size(), 2U);
  EXPECT_THAT(c.coordinator.status_json(c.now), HasSubstr(R"("leads":true,"voters":["paris","tokyo","lima"])"));
}

TEST_F(Lead, AnAnswerTooLateForTheElectionIsNoOffence) {
  static_cast<void>(elected());
  EXPECT_TRUE(c.hear(2, wire::Accepted{TermId{2}}).empty());
  EXPECT_TRUE(c.hear(2, wire::Promise{TermId{2}, kAnchor, voter("tokyo").report}).empty());
}

TEST_F(Lead, AVoterThatComesLaterKeepsItsVote) {
  installed(elected());
  wire::Join lima = voter("lima");
  const auto back = c.hear(3, lima);
  EXPECT_EQ(sent<wire::Welcome>(back).at(0).second.site, SiteId{2});
  installed(back);
  static_cast<void>(c.close(2));
  static_cast<void>(c.hear(1, ready()));
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(3, ready())).size(), 2U);
}

// ---- what it commits -------------------------------------------------------------------------------

TEST_F(Lead, ADecisionAcceptedByAllIsCommittedOnceMostHaveAcceptedItAgain) {
  c.no_accept = {2};
  static_cast<void>(c.come(1, knows(voter("paris"), attempt(), true)));
  const auto asked = c.come(2, knows(voter("tokyo"), attempt(), true));
  ASSERT_EQ(sent<wire::Accept>(asked).size(), 2U);
  EXPECT_EQ(sent<wire::Accept>(asked)[0].second.proposals.at(0).start, attempt());
  EXPECT_THAT(sent<wire::Commit>(asked), IsEmpty()) << "only one of three has";
  const auto actions = c.hear(2, wire::Accepted{TermId{2}});
  const auto commits = sent<wire::Commit>(actions);
  ASSERT_EQ(commits.size(), 2U);
  EXPECT_EQ(commits[0].second,
            (wire::Commit{TermId{2}, RunId{7}, RoundId{5}, AttemptId{1}, {SiteId{0}, SiteId{1}, SiteId{2}}}));
  EXPECT_THAT(notes(actions),
              HasSubstr("attempt 1 of round 5 is committed, because its leader may have committed it already"));
  EXPECT_THAT(sent<wire::InstallAnchor>(actions), IsEmpty()) << "each applies it";
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{5}, kWrong}));
  static_cast<void>(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{5}, kWrong}));
  static_cast<void>(c.hear(1, H::ready(6, 1, kWrong)));
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(2, H::ready(6, 1, kWrong))).at(0).second.round, RoundId{6});
}

// Else who waits for the anchor is taken for one who gives it, and the two wait for each other.
TEST_F(Lead, ASiteThatAppliedAnotherMeanTakesTheAnchorItWasSent) {
  static_cast<void>(c.come(1, knows(voter("paris"), attempt(), true)));
  static_cast<void>(c.come(2, knows(voter("tokyo"), attempt(), true)));
  static_cast<void>(c.hear(2, H::ready(5, 1)));  // said before the commit had reached it
  ASSERT_EQ(sent<wire::InstallAnchor>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{5}, kRight})).at(0).first,
            LinkId{2});
  const auto crossed = c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{5}, kWrong});
  EXPECT_THAT(notes(crossed), testing::Not(HasSubstr("joined")));
  EXPECT_THAT(c.coordinator.status_json(c.now), HasSubstr("installing"));
  EXPECT_THAT(notes(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{5}, kRight})), HasSubstr("tokyo joined"));
}

// Two successors in a row: the first commits the attempt to paris alone and dies, the second never hears of paris.
TEST_F(Lead, APredecessorsDecisionIsCommittedThoughOneSiteHadNotAcceptedIt) {
  static_cast<void>(c.come(1, knows(voter("paris"), attempt(), true)));
  ASSERT_EQ(sent<wire::Commit>(c.come(2, knows(voter("tokyo"), attempt(), true))).size(), 2U);
  wire::Join tokyo = c.said.at(2);  // it missed the commit

  H second(config());
  second.invariants.coordinator_step("predecessor", Tick{}, {Send{LinkId{1}, attempt()}});
  static_cast<void>(second.come(1, tokyo));
  const auto actions = second.come(2, knows(voter("lima"), attempt(), false));
  const auto commits = sent<wire::Commit>(actions);
  ASSERT_EQ(commits.size(), 1U) << notes(actions);
  EXPECT_EQ(commits[0].first, LinkId{1}) << "lima has not the mean: it takes the anchor";
  const auto installs = sent<wire::InstallAnchor>(second.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{5}, kWrong}));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].first, LinkId{2});
  EXPECT_EQ(installs[0].second.counted, wire::Counted::kYes) << "what lima sent is in the mean";
}

TEST_F(Lead, AnAttemptThatAVoterHasNotAcceptedIsGivenUpAndKeepsItsSlices) {
  static_cast<void>(c.come(1, knows(voter("paris"), attempt(), true)));
  const auto actions = c.come(2, voter("tokyo"));
  EXPECT_THAT(notes(actions), HasSubstr("attempt 1 of round 5 is given up: not all had accepted it"));
  EXPECT_THAT(sent<wire::Commit>(actions), IsEmpty());
  installed(actions);
  static_cast<void>(c.hear(1, ready()));
  const auto starts = sent<wire::StartAttempt>(c.hear(2, ready()));
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].second.round, RoundId{5});
}

// It contributed and was lost; the attempt was formed again without waiting for it, and is not for it to rule out.
TEST_F(Lead, ALostSitesContributionIsCommittedWithTheRest) {
  wire::StartAttempt start = attempt();
  start.attempt = AttemptId{2};
  start.participants[2].here = false;
  start.slices[2].owner = SiteId{0};
  predecessor(start);
  static_cast<void>(c.come(1, knows(voter("paris"), start, true)));
  const auto commits = sent<wire::Commit>(c.come(3, knows(voter("lima"), attempt(), false)));
  ASSERT_EQ(commits.size(), 1U);
  EXPECT_EQ(commits[0].second.attempt, AttemptId{2});
  EXPECT_EQ(commits[0].second.contributors.size(), 3U) << "what lima sent is in the mean";
}

TEST_F(Lead, ASiteWithAnotherMeanThanTheCommittedOneTakesTheAnchor) {
  static_cast<void>(c.come(1, knows(voter("paris"), attempt(), true)));
  static_cast<void>(c.come(2, knows(voter("tokyo"), attempt(), true)));
  wire::Join lima = knows(voter("lima"), attempt(), true);
  lima.report.record.proposals[0].slices[0] = kWrong;
  const auto actions = c.hear(3, lima);
  EXPECT_THAT(sent<wire::Commit>(actions), IsEmpty());
  EXPECT_THAT(notes(actions),
              HasSubstr("[repair] lima has a different mean of round 5 from the one that was committed"));
}

// ---- an anchor that nobody here holds --------------------------------------------------------------

// Both have accepted what a successor settled; neither has the mean any more.
class LeadWithoutTheMean : public Lead {
 protected:
  static wire::Join without(const std::string& name) {
    wire::Join join = knows(voter(name, 2), attempt(), true);
    join.report.record.proposals[0].settled = TermId{2};
    join.report.holds_mean = false;
    return join;
  }
  H::Actions both() {
    static_cast<void>(c.come(1, without("paris")));
    return c.come(2, without("tokyo"));
  }
};

TEST_F(LeadWithoutTheMean, ASiteThatMayHaveItIsWaitedFor) {
  EXPECT_THAT(sent<wire::InstallAnchor>(both()), IsEmpty()) << "lima may bring round 5";
  const auto waiting = c.pass(seconds(50), {1, 2});
  EXPECT_THAT(sent<wire::InstallAnchor>(waiting), IsEmpty());
  EXPECT_THAT(notes(waiting), HasSubstr("no site has brought back round 5 yet"));
  wire::Join lima = voter("lima");
  lima.offer.round = lima.report.record.anchor.round = RoundId{5};
  const auto installs = sent<wire::InstallAnchor>(c.hear(3, lima));
  ASSERT_EQ(installs.size(), 3U);
  EXPECT_EQ(installs[0].second.run, RunId{7});
  EXPECT_EQ(installs[0].second.round, RoundId{5});
  EXPECT_EQ(installs[0].second.sources, std::vector{SiteId{2}});
}

TEST_F(LeadWithoutTheMean, ASiteWithAnotherMeanCannotApplyIt) {
  wire::Join paris = knows(voter("paris", 2), attempt(), true);
  paris.report.record.proposals[0].slices[0] = {9, 9};
  static_cast<void>(c.come(1, paris));
  EXPECT_THAT(sent<wire::Commit>(c.come(2, without("tokyo"))), IsEmpty());
  EXPECT_THAT(notes(c.pass(seconds(50), {1, 2})), HasSubstr("no site has brought back round 5 yet"));
}

TEST_F(LeadWithoutTheMean, SitesWaitForAGraceThenContinueAsAnotherRun) {
  static_cast<void>(both());
  const auto later = c.pass(seconds(61), {1, 2});
  EXPECT_THAT(notes(later), HasSubstr("no site has brought back round 5 within 60 s (COLLAB_LINK_GRACE)"));
  const auto installs = sent<wire::InstallAnchor>(later);
  ASSERT_EQ(installs.size(), 2U);
  EXPECT_EQ(installs[0].second.run, RunId{70}) << "round 5 of run 7 is another one";
  EXPECT_EQ(installs[0].second.round, RoundId{4});
  for (const auto& [link, install] : installs)
    EXPECT_NE(install.counted, wire::Counted::kYes) << "round 5 is no part of it";
  const std::vector<wire::Voter>& voters = installs[0].second.voters;
  ASSERT_EQ(voters.size(), 2U);
  EXPECT_EQ(voters[0].acceptor, renounced("paris")) << "as it is known there";
}

TEST_F(LeadWithoutTheMean, SitesContinueAtOnceIfNoSiteIsMissing) {
  static_cast<void>(both());
  const auto actions = c.hear(3, without("lima"));
  EXPECT_THAT(notes(actions), HasSubstr("no site has brought back round 5: no missing site could bring it"));
  const auto installs = sent<wire::InstallAnchor>(actions);
  ASSERT_EQ(installs.size(), 3U);
  EXPECT_EQ(installs[0].second.run, RunId{70});
}

// It was done, and left before the commit: it agrees to what the others do then, too, and will not come any more.
TEST_F(Lead, ASiteThatLeftDuringTheAttemptIsNotWaitedForAfterIt) {
  const std::vector<std::string> two{"paris", "tokyo"};
  wire::StartAttempt start = SiteHarness::start(5, 1, 2);
  start.attempt = AttemptId{2};
  predecessor(start);
  wire::Join paris = knows(voter("paris", 1, two), start, true);
  paris.report.record.proposals[0].slices.pop_back();
  paris.report.record.voters[1].left = true;
  const auto actions = c.come(1, paris);
  EXPECT_EQ(sent<wire::Commit>(actions).size(), 1U) << notes(actions);
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{5}, kWrong}));
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(1, H::ready(6, 1, kWrong))).size(), 1U);
}

// ---- as another run --------------------------------------------------------------------------------

// Its promise would be waited for. A host that is gone says nothing, and its link stays open.
TEST_F(Lead, ASiteSilentDuringTheElectionIsDropped) {
  static_cast<void>(c.come(1, voter("paris")));
  EXPECT_THAT(sent<wire::Prepare>(c.hear(2, voter("tokyo"))), SizeIs(2));
  const auto later = c.pass(seconds(61), {1});
  EXPECT_THAT(notes(later), Not(HasSubstr("coordinator leads term")));
  EXPECT_THAT(c.coordinator.status_json(c.now), HasSubstr("\"applicants\":[\"paris\"]"));
}

TEST_F(Lead, SitesContinueAsAnotherRunIfTooFewHaveTheirRecords) {
  static_cast<void>(c.come(1, voter("paris")));
  EXPECT_THAT(sent<wire::Welcome>(c.come(2, forgetful("tokyo"))), IsEmpty()) << "lima may know of more than these two";
  const auto later = c.pass(seconds(61), {1, 2});
  EXPECT_THAT(
      notes(later),
      HasSubstr("under another run's name; this coordinator leads term 2, elected by 2 sites, at run 7 round 4"));
  const auto installs = sent<wire::InstallAnchor>(later);
  ASSERT_EQ(installs.size(), 2U) << notes(later);
  EXPECT_EQ(installs[0].second.run, RunId{70});
  EXPECT_EQ(installs[0].second.round, RoundId{4});
  EXPECT_EQ(installs[0].second.voters.size(), 2U);
  installed(later);
  static_cast<void>(c.hear(1, ready()));
  const auto starts = sent<wire::StartAttempt>(c.hear(2, ready()));
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].second.run, RunId{70});
  EXPECT_EQ(starts[0].second.voters, installs[0].second.voters);
}

// The hosts were started again: records are on disks, and the anchor was in memory alone.
class LeadAfterAllWereRebooted : public Lead {
 protected:
  static wire::Join rebooted(const std::string& name) {
    wire::Join join = voter(name);
    join.offer = {RunId{0}, RoundId{0}, kRight};
    return join;
  }
  H::Actions two() {
    static_cast<void>(c.come(1, rebooted("paris")));
    return c.come(2, rebooted("tokyo"));
  }
  static void expect_begun_anew(const H::Actions& actions, std::size_t sites) {
    const auto installs = sent<wire::InstallAnchor>(actions);
    ASSERT_EQ(installs.size(), sites) << notes(actions);
    EXPECT_EQ(installs[0].second.run, RunId{70}) << "round 1 of run 7 is another one";
    EXPECT_EQ(installs[0].second.round, RoundId{0});
    EXPECT_EQ(installs[0].second.sources, std::vector{SiteId{0}});
    ASSERT_EQ(installs[0].second.voters.size(), sites);
    for (const wire::Voter& one : installs[0].second.voters) {
      EXPECT_EQ(one.acceptor, renounced(one.name)) << "no witness of run 7 any more";
    }
  }
};

TEST_F(LeadAfterAllWereRebooted, SitesBeginAnewAsAnotherRunAfterAGrace) {
  EXPECT_THAT(sent<wire::InstallAnchor>(two()), IsEmpty()) << "lima may bring round 4";
  EXPECT_THAT(sent<wire::InstallAnchor>(c.pass(seconds(59), {1, 2})), IsEmpty());
  const auto later = c.pass(seconds(2), {1, 2});
  EXPECT_THAT(notes(later), HasSubstr("no site has brought back round 4 within 60 s (COLLAB_LINK_GRACE)"));
  expect_begun_anew(later, 2);
}

TEST_F(LeadAfterAllWereRebooted, SitesBeginAnewAtOnceIfAllAreHere) {
  static_cast<void>(two());
  const auto actions = c.hear(3, rebooted("lima"));
  EXPECT_THAT(notes(actions), HasSubstr("no site has brought back round 4: no missing site could bring it"));
  expect_begun_anew(actions, 3);
}

// ---- the end of it ---------------------------------------------------------------------------------

std::string reason_of(const H::Actions& actions) {
  const auto hangups = all<CloseLink>(actions);
  return hangups.empty() ? "" : hangups[0].why;
}

TEST_F(Lead, TooFewForAGraceAndItLeadsNoMore) {
  installed(elected());
  static_cast<void>(c.close(2));
  EXPECT_EQ(sent<wire::RoundSkipped>(c.hear(1, ready())).size(), 1U) << "who is here trains on";
  EXPECT_THAT(all<CloseLink>(c.pass(seconds(59), {1})), IsEmpty());
  const auto later = c.pass(seconds(2), {1});
  EXPECT_THAT(reason_of(later),
              HasSubstr("no longer leads: 1 of the 3 sites that agreed on round 4, which is not a majority; "
                        "missing: tokyo, lima"));
  EXPECT_EQ(c.coordinator.members(), 0U);
}

TEST_F(Lead, TheGraceBeginsAnewOnceMostAreHereAgain) {
  installed(elected());
  static_cast<void>(c.close(2));
  static_cast<void>(c.pass(seconds(50), {1}));
  static_cast<void>(c.hear(3, voter("tokyo")));
  static_cast<void>(c.close(3));
  EXPECT_THAT(all<CloseLink>(c.pass(seconds(50), {1})), IsEmpty());
  EXPECT_FALSE(reason_of(c.pass(seconds(11), {1})).empty());
}

TEST_F(Lead, ANewerTermEndsItsOwn) {
  installed(elected());
  const auto actions = c.come(3, voter("lima", 9));
  EXPECT_THAT(reason_of(actions), HasSubstr("no longer leads: lima follows term 9"));
  EXPECT_EQ(all<CloseLink>(actions).size(), 2U) << "of the members";
  EXPECT_EQ(c.coordinator.members(), 0U);
  static_cast<void>(c.come(4, voter("paris", 2)));
  const auto again = sent<wire::Welcome>(c.elect({}));
  EXPECT_THAT(again, IsEmpty());
  EXPECT_EQ(c.coordinator.members(), 2U) << "lima and paris have elected it anew";
}

TEST_F(Lead, ALaterRoundOfItsRunEndsItToo) {
  installed(elected());
  wire::Join lima = voter("lima");
  lima.report.record.anchor.round = RoundId{5};
  EXPECT_THAT(reason_of(c.hear(3, lima)), HasSubstr("lima knows of a later round"));
}

// A voter that says so and is disproved is refused, and deposes nobody by that word again.
TEST_F(Lead, ALaterRoundThatWasDisprovedEndsNothing) {
  installed(elected());
  wire::Join lima = voter("lima");
  lima.report.record.anchor.round = RoundId{9};
  for (const bool with_membership : {true, false}) {
    if (!with_membership) lima.report.record.voters.clear();
    H::Actions actions = c.hear(3, lima);
    for (const std::uint64_t link : {1, 2}) {
      for (auto& action : c.hear(link, voter(link == 1 ? "paris" : "tokyo"))) actions.push_back(std::move(action));
    }
    static_cast<void>(c.elect(std::move(actions)));
    EXPECT_EQ(c.coordinator.members(), 2U);
    const auto again = c.hear(4, lima);
    ASSERT_EQ(sent<wire::Refuse>(again).size(), 1U) << with_membership;
    EXPECT_THAT(sent<wire::Refuse>(again).at(0).second.reason, HasSubstr("[join.record-disproved]"));
    EXPECT_EQ(c.coordinator.members(), 2U) << "it leads on";
  }
}

// It comes first, and with a membership of which nobody else is.
TEST_F(Lead, ASiteThatClaimsALaterRoundIsNotElectedByItsOwnWord) {
  installed(elected());
  wire::Join lima = voter("lima");
  lima.report.record.anchor.round = RoundId{9};
  lima.report.record.voters = voters_of({"lima"});
  EXPECT_THAT(sent<wire::Welcome>(c.come(3, lima)), IsEmpty());
  EXPECT_THAT(sent<wire::Welcome>(c.come(1, voter("paris"))), IsEmpty()) << "one of three says nothing against it";
  static_cast<void>(c.come(2, voter("tokyo")));
  EXPECT_EQ(c.coordinator.members(), 2U);
  const auto again = sent<wire::Refuse>(c.hear(4, lima));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_THAT(again.at(0).second.reason, HasSubstr("[join.record-disproved]"));
}

TEST_F(Lead, ASiteThatDeposedALeaderIsElectedAfterAGraceIfTheOthersStayAway) {
  installed(elected());
  wire::Join lima = voter("lima");
  lima.report.record.anchor.round = RoundId{9};
  lima.report.record.voters = voters_of({"lima"});
  static_cast<void>(c.come(3, lima));
  EXPECT_THAT(sent<wire::Welcome>(c.elect(c.pass(seconds(59), {3}))), IsEmpty());
  EXPECT_EQ(sent<wire::Welcome>(c.elect(c.pass(seconds(2), {3}))).size(), 1U);
}

TEST_F(Lead, OneVoterDeposesALeaderAtMostThreeTimesAGrace) {
  installed(elected());
  const auto deposed = [&](std::uint64_t link, std::uint64_t promised) {
    const auto actions = c.come(link, voter("lima", promised));
    static_cast<void>(c.come(1, voter("paris", promised)));
    static_cast<void>(c.come(2, voter("tokyo", promised)));
    static_cast<void>(c.elect({}));
    static_cast<void>(c.close(link));
    return reason_of(actions);
  };
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_THAT(deposed(10 + i, 20 + 10 * i), HasSubstr("no longer leads")) << i;
  }
  const auto kept = c.come(20, voter("lima", 90));
  EXPECT_THAT(reason_of(kept), HasSubstr("[coordinator.deposed]"));
  EXPECT_EQ(all<CloseLink>(kept).size(), 1U) << "its own link";
  static_cast<void>(c.pass(seconds(61), {1, 2}));
  EXPECT_THAT(deposed(30, 91), HasSubstr("no longer leads"));
}

TEST_F(Lead, AStrangerDoesNotDeposeTheElectedLeader) {
  installed(elected());
  wire::Join stranger = voter("oslo", 99);
  stranger.elements = 7;
  const auto refused = c.hear(3, stranger);
  EXPECT_EQ(sent<wire::Refuse>(refused).size(), 1U);
  EXPECT_EQ(all<CloseLink>(refused).size(), 1U) << "only its own link";
}

// Whom most have elected the other swarm's site joins, whatever its own has agreed on.
TEST_F(Lead, ASiteOfAnotherSwarmJoinsTheElectedLeader) {
  installed(elected());
  wire::Join oslo = member_of("oslo", {RunId{9}, RoundId{90}, kWrong}, voters_of({"oslo"}));
  const auto actions = c.hear(3, oslo);
  EXPECT_EQ(sent<wire::Welcome>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::InstallAnchor>(actions).at(0).second.run, RunId{7});
  EXPECT_EQ(c.coordinator.members(), 3U);
}

// What it has promised, it has promised in another register: terms of two do not compare.
TEST_F(Lead, TheTermOfAnotherSwarmDoesNotDeposeThatOne) {
  installed(elected());
  wire::Join oslo = member_of("oslo", {RunId{9}, RoundId{90}, kWrong}, voters_of({"oslo"}));
  oslo.report.record.promised = TermId{99};
  const auto actions = c.hear(3, oslo);
  EXPECT_TRUE(all<CloseLink>(actions).empty()) << notes(actions);
  const auto welcomes = sent<wire::Welcome>(actions);
  ASSERT_EQ(welcomes.size(), 1U);
  EXPECT_EQ(welcomes[0].second, (wire::Welcome{TermId{2}, SiteId{3}, 1000, 60000, true}));
  EXPECT_EQ(c.coordinator.members(), 3U);
}

TEST_F(Lead, TheTermOfANewcomerOrAHelperDoesNotDeposeTheLeader) {
  installed(elected());
  wire::Join newcomer = voter("oslo", 99);
  wire::Join helper = voter("boat", 99);
  helper.helper = true;
  helper.model.clear();
  for (const auto& [link, join] : std::vector<std::pair<std::uint64_t, wire::Join>>{{3, newcomer}, {4, helper}}) {
    const auto welcomes = sent<wire::Welcome>(c.hear(link, join));
    ASSERT_EQ(welcomes.size(), 1U) << join.site;
    EXPECT_TRUE(welcomes[0].second.anew) << join.site;
  }
  EXPECT_EQ(c.coordinator.members(), 4U);
}

// Both are back on new links while their old ones are dead, and know a newer term: the first of them ends this one.
TEST_F(Lead, TwoSitesBackAtOnceWithANewerTermEndTheLeadership) {
  installed(elected());
  for (const std::uint64_t link : {5U, 6U}) {
    wire::Join back = voter(link == 5 ? "paris" : "tokyo", 9);
    back.process = link;
    EXPECT_TRUE(all<CloseLink>(c.hear(link, back)).empty()) << "the old link may be alive";
  }
  EXPECT_EQ(c.coordinator.members(), 2U);
  const auto actions = c.pass(seconds(10));
  EXPECT_THAT(notes(actions), HasSubstr("follows term 9"));
  EXPECT_EQ(c.coordinator.members(), 0U);
}

// It may have promised that to a successor: the membership that is just asked for counts from the next round on.
TEST_F(Lead, ANewerTermAtASiteOfTheNextMembershipDeposesTheLeader) {
  installed(elected());
  installed(c.hear(3, [] {
    wire::Join oslo = join_of("oslo");
    oslo.offer = kAnchor;
    return oslo;
  }()));
  for (const std::uint64_t link : {1, 2, 3}) static_cast<void>(c.hear(link, ready()));
  wire::Join oslo = voter("oslo", 99);
  EXPECT_THAT(reason_of(c.hear(4, oslo)), HasSubstr("oslo follows term 99"));
}

}  // namespace
}  // namespace collab::protocol
