// Sites that lost their records, that left, or that are forgotten; two candidates; and which swarm stays.
#include <gmock/gmock.h>

#include "tests/unit/protocol/election_world.h"

namespace collab::protocol {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<std::string> kFive{"paris", "tokyo", "lima", "oslo", "rome"};

// ---- without a record ------------------------------------------------------------------------------

TEST(Recovering, CountsByNameUnderATermThatBeganAfterItHadCome) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris")));
  EXPECT_FALSE(world.come(3, forgetful("lima"))) << "of two by name one has its record, which is less than half";
  EXPECT_THAT(world.prepared(), IsEmpty());
  EXPECT_FALSE(world.come(2, voter("tokyo")));
  static_cast<void>(world.promise(3));
  static_cast<void>(world.promise(1));
  EXPECT_THAT(world.asked_to_accept(), IsEmpty()) << "by name most, with records less than half";
  static_cast<void>(world.promise(2));
  EXPECT_EQ(world.asked_to_accept().size(), 3U);
  static_cast<void>(world.accept(1));
  const auto elected = world.accept(2);
  ASSERT_TRUE(elected);
  for (const ElectionResult::Applicant& applicant : elected->applicants) EXPECT_TRUE(applicant.early);
}

// Of four, two with their records and one by name are a majority.
TEST(Recovering, MakesUpTheNumber) {
  const std::vector<std::string> four{kFive.begin(), kFive.begin() + 4};
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris", 1, four)));
  EXPECT_FALSE(world.come(2, voter("tokyo", 1, four)));
  EXPECT_THAT(world.prepared(), IsEmpty());
  EXPECT_FALSE(world.come(3, forgetful("lima")));
  EXPECT_EQ(world.prepared().size(), 3U);
  EXPECT_TRUE(world.elect());
}

TEST(Recovering, AnElectionBeginsAnewForARecoveringSiteThatIsNeeded) {
  ElectionWorld world;
  const std::vector<std::string> four{"paris", "tokyo", "lima", "oslo"};
  static_cast<void>(world.come(1, voter("paris", 1, four)));
  static_cast<void>(world.come(2, voter("tokyo", 1, four)));
  static_cast<void>(world.come(4, voter("oslo", 1, four)));
  static_cast<void>(world.promise(1));
  static_cast<void>(world.go(4));
  const TermId before = world.term();
  EXPECT_FALSE(world.come(3, forgetful("lima")));
  EXPECT_GT(world.term(), before);
  EXPECT_EQ(world.prepared().size(), 6U) << "all are asked again";
  world.hear(2, wire::Promise{before, kAnchor, voter("tokyo", 1, four).report});
  EXPECT_FALSE(world.advance());
  EXPECT_THAT(world.asked_to_accept(), IsEmpty()) << "that was of the term before";
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  for (const ElectionResult::Applicant& applicant : elected->applicants) EXPECT_TRUE(applicant.early);
}

// Nothing is accepted by that membership before the next term, and the site is absent from it until then.
TEST(Recovering, ASiteOfTheNextMembershipOnlyIsTooLateAndBeginsNoNewTerm) {
  ElectionWorld world;
  wire::Proposal grown{{TermId{1}, 1, kModel, kAnchor.run, RoundId{5}, AttemptId{1}, {}, {}, {}}, true};
  grown.start.participants = {{SiteId{0}, "paris"}, {SiteId{1}, "tokyo"}};
  grown.start.voters = voters_of({"paris", "tokyo", "oslo", "rome"});
  const auto accepted = [&](wire::Join join) {
    join.report.record.proposals = {grown};
    return join;
  };
  static_cast<void>(world.come(1, accepted(voter("paris"))));
  static_cast<void>(world.come(2, accepted(voter("tokyo"))));
  static_cast<void>(world.come(3, join_of("rome")));
  const TermId begun = world.term();
  EXPECT_EQ(world.prepared().size(), 3U);
  static_cast<void>(world.go(3));
  EXPECT_FALSE(world.come(4, fresh("oslo")));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->term, begun);
  for (const ElectionResult::Applicant& applicant : elected->applicants)
    EXPECT_EQ(applicant.early, applicant.join.site != "oslo");
}

TEST(Recovering, IsTooLateForATermOnceItsPromisesAreFrozen) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  static_cast<void>(world.promise(1));
  static_cast<void>(world.promise(2));
  const TermId before = world.term();
  EXPECT_FALSE(world.come(3, forgetful("lima")));
  EXPECT_EQ(world.term(), before);
  static_cast<void>(world.accept(1));
  const auto elected = world.accept(2);
  ASSERT_TRUE(elected);
  ASSERT_EQ(elected->applicants.size(), 3U);
  for (const ElectionResult::Applicant& applicant : elected->applicants)
    EXPECT_EQ(applicant.early, applicant.join.site != "lima");
}

// It waits with one who knows more than it, and is not to found a swarm when that one looks elsewhere for a moment.
TEST(Recovering, AFreshSiteFoundsNoSwarmIfAnInformedOneWasHere) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris")));
  EXPECT_FALSE(world.come(2, fresh("tokyo")));
  EXPECT_FALSE(world.pass(seconds(50)));
  EXPECT_FALSE(world.go(1));
  world.now += seconds(15);
  const auto elected = world.come(3, voter("paris"));
  ASSERT_TRUE(elected) << "the grace is over";
  EXPECT_FALSE(elected->founded);
  EXPECT_NE(elected->new_run, "");
}

TEST(Recovering, ASwarmIsFoundedOnceTheSiteThatKnewOneHasBeenAwayForAGrace) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris")));
  EXPECT_FALSE(world.come(2, fresh("tokyo")));
  EXPECT_FALSE(world.go(1));
  EXPECT_FALSE(world.pass(seconds(59)));
  const auto elected = world.pass(seconds(2));
  ASSERT_TRUE(elected);
  EXPECT_TRUE(elected->founded);
}

// Nobody of the swarm: it may come when it likes.
TEST(Recovering, AStrangerWithoutARecordChangesNothing) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  const TermId before = world.term();
  EXPECT_FALSE(world.come(3, join_of("oslo")));
  EXPECT_EQ(world.term(), before);
}

// It founded a swarm of its own since, and knows what it has promised there: of this one it has forgotten all.
TEST(Recovering, ASiteOfAnotherRunHasNoRecordOfThisOne) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris")));
  wire::Join other = member_of("tokyo", {RunId{8}, RoundId{0}, kRight}, {{SiteId{0}, "tokyo", AcceptorId{5}}});
  other.report.record.acceptor = AcceptorId{5};
  other.report.record.promised = TermId{70};
  EXPECT_FALSE(world.come(2, other));
  EXPECT_THAT(world.prepared(), IsEmpty()) << "half of those who remember are not here";
  const auto elected = world.pass(seconds(61));
  ASSERT_TRUE(elected);
  EXPECT_NE(elected->new_run, "");
  EXPECT_GT(elected->term, TermId{70});
}

// ---- the way out -----------------------------------------------------------------------------------

TEST(WayOut, SitesContinueAsAnotherRunAfterAGraceIfTooFewKeptTheirRecords) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris", 8)));
  EXPECT_FALSE(world.come(2, forgetful("tokyo"))) << "lima may know of more than these two";
  EXPECT_FALSE(world.pass(seconds(59)));
  EXPECT_THAT(world.lines, HasSubstr("waiting for sites that have kept their records: 2 of the 3 sites that agreed on "
                                     "round 4 are here; missing: lima"));
  const auto elected = world.pass(seconds(2));
  ASSERT_TRUE(elected);
  EXPECT_THAT(elected->new_run, HasSubstr("too few of the sites here have kept their records; after 60 s "
                                          "(COLLAB_LINK_GRACE) they go on"));
  EXPECT_GT(elected->term, TermId{8});
  EXPECT_EQ(elected->anchor, kAnchor);
  EXPECT_FALSE(elected->founded);
}

// All of them were started again: nobody is missing, and still what was agreed on last is not known.
TEST(WayOut, AllOfThemWithoutTheirRecordsWaitAsWell) {
  ElectionWorld world;
  for (std::uint64_t link = 1; link <= 3; ++link) EXPECT_FALSE(world.come(link, forgetful(kNames[link - 1])));
  EXPECT_THAT(world.prepared(), IsEmpty());
  EXPECT_FALSE(world.pass(seconds(59)));
  const auto elected = world.pass(seconds(2));
  ASSERT_TRUE(elected);
  EXPECT_THAT(elected->new_run, HasSubstr("3 of the 3 sites that agreed on round 4 are here; missing: none"));
}

TEST(WayOut, AttemptsThatMayHaveBeenCommittedAreNotSettledInAnotherRun) {
  ElectionWorld world;
  wire::Join paris = voter("paris");
  paris.report.record.proposals.push_back({SiteHarness::start(5, 1, 3), true, {{5, 5}, {6, 6}, {7, 7}}});
  static_cast<void>(world.come(1, paris));
  static_cast<void>(world.come(2, forgetful("tokyo")));
  const auto elected = world.pass(seconds(61));
  ASSERT_TRUE(elected);
  EXPECT_FALSE(elected->settled);
}

// Sites hang up by themselves after a while, to look elsewhere; the grace is not to begin anew each time.
TEST(WayOut, ASiteThatComesAndGoesWaitsNoLongerThanTheGrace) {
  ElectionWorld world;
  std::uint64_t link = 1;
  for (int visit = 0; visit < 2; ++visit) {
    EXPECT_FALSE(world.come(link++, voter("paris")));
    EXPECT_FALSE(world.come(link++, forgetful("tokyo")));
    EXPECT_FALSE(world.pass(seconds(20)));
    EXPECT_FALSE(world.go(link - 2));
    EXPECT_FALSE(world.go(link - 1));
    world.now += seconds(2);
  }
  EXPECT_FALSE(world.come(link++, voter("paris")));
  EXPECT_FALSE(world.come(link++, forgetful("tokyo")));
  EXPECT_TRUE(world.pass(seconds(17)));
}

TEST(WayOut, TheWaitBeginsAnewAfterAnAbsenceLongerThanTheGrace) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, forgetful("tokyo")));
  EXPECT_FALSE(world.pass(seconds(50)));
  static_cast<void>(world.go(2));
  static_cast<void>(world.go(1));
  world.now += seconds(70);
  static_cast<void>(world.come(3, voter("paris")));
  EXPECT_FALSE(world.come(4, forgetful("tokyo")));
  EXPECT_FALSE(world.pass(seconds(59)));
  EXPECT_TRUE(world.pass(seconds(2)));
}

// ---- a voter that has gone on under a later run ----------------------------------------------------

// It ended in good order, so that its record is gone, and its anchor is left.
wire::Join gone_on(const std::string& name, const wire::Offer& anchor = {RunId{8}, RoundId{24}, kWrong}) {
  wire::Join join = fresh(name);
  join.offer = anchor;
  return join;
}

// The others were forgotten there: without it they could not have gone on, by its name they would.
TEST(GoneOn, ASiteOfALaterRunIsNoVoterOfTheRunThatItLeft) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris", 8, {"paris", "tokyo"})));
  const auto elected = world.come(2, gone_on("tokyo"));
  ASSERT_TRUE(elected);
  EXPECT_THAT(elected->new_run, HasSubstr("tokyo brings round 24 of a later run, which went on without the others: "
                                          "the sites here go on from the newest anchor"));
  EXPECT_GT(elected->term, TermId{8});
  EXPECT_FALSE(elected->founded);
}

TEST(GoneOn, AMajorityThatIsStillElectingTakesTheLaterRunIntoAccount) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris")));
  EXPECT_FALSE(world.come(3, gone_on("lima")));
  const auto elected = world.come(2, voter("tokyo"));
  ASSERT_TRUE(elected);
  EXPECT_NE(elected->new_run, "");
}

// A swarm of its own after the loss of its disk, an older one's state, a stranger's.
TEST(GoneOn, CountsOnlyForAVoterWithMoreRoundsOfALaterRun) {
  for (const wire::Join& other :
       {gone_on("lima", {RunId{8}, RoundId{3}, kWrong}), gone_on("lima", {RunId{6}, RoundId{24}, kWrong}),
        gone_on("lima", {kAnchor.run, RoundId{5}, kWrong}), gone_on("oslo")}) {
    ElectionWorld world;
    EXPECT_FALSE(world.come(1, voter("paris")));
    EXPECT_FALSE(world.come(3, other));
    EXPECT_FALSE(world.come(2, voter("tokyo")));
    const auto elected = world.elect();
    ASSERT_TRUE(elected) << other.site << " round " << other.offer.round.value;
    EXPECT_EQ(elected->new_run, "");
    EXPECT_EQ(elected->anchor, kAnchor);
  }
}

// Some hold it, and their word may have been set aside: the others would have settled it.
TEST(GoneOn, DoesNotOverrideARoundThatMayBeCommitted) {
  for (const std::uint64_t round : {std::uint64_t{4}, std::uint64_t{5}}) {
    ElectionWorld world;
    wire::Join paris = voter("paris"), tokyo = voter("tokyo");
    for (wire::Join* join : {&paris, &tokyo}) {
      join->report.record.proposals.push_back({SiteHarness::start(5, 1, 2), true, {{5, 5}, {6, 6}}});
    }
    EXPECT_FALSE(world.come(1, paris));
    EXPECT_FALSE(world.come(3, gone_on("lima", {RunId{8}, RoundId{round}, kWrong})));
    const auto came = world.come(2, tokyo);
    const auto elected = came ? came : world.elect();
    ASSERT_TRUE(elected);
    EXPECT_EQ(elected->new_run != "", round == 5) << elected->new_run;
    EXPECT_EQ(elected->settled.has_value(), round == 4);
  }
}

// ---- forgetting ------------------------------------------------------------------------------------

TEST(Forgetting, PresentSitesGoOnWithoutForgottenOnes) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  world.election.forget({"tokyo"});
  EXPECT_FALSE(world.advance()) << "lima is missing, too";
  world.election.forget({"lima"});
  const auto elected = world.advance();
  ASSERT_TRUE(elected);
  EXPECT_THAT(
      elected->new_run,
      HasSubstr("1 of the 3 sites that agreed on round 4 are here; missing: tokyo, lima, and they are forgotten "
                "(collab forget, or COLLAB_FORGET_AFTER)"));
  EXPECT_EQ(elected->anchor, kAnchor);
}

TEST(Forgetting, AMajorityNeedsNobodyToBeForgotten) {
  ElectionWorld world;
  world.election.forget({"lima"});
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->new_run, "");
}

TEST(Forgetting, HappensByItselfAfterTheConfiguredTime) {
  Election::Config config = ElectionWorld::config();
  config.forget_after = seconds(600);
  ElectionWorld world(config);
  static_cast<void>(world.come(1, voter("paris")));
  EXPECT_FALSE(world.pass(seconds(599)));
  EXPECT_TRUE(world.pass(seconds(2)));
}

TEST(Forgetting, CountsTheTimeOfAllVisitsTogether) {
  Election::Config config = ElectionWorld::config();
  config.forget_after = seconds(600);
  ElectionWorld world(config);
  std::uint64_t link = 1;
  for (int visit = 0; visit < 13; ++visit) {
    EXPECT_FALSE(world.come(link, voter("paris")));
    EXPECT_FALSE(world.pass(seconds(44)));
    EXPECT_FALSE(world.go(link++));
    world.now += seconds(2);
  }
  EXPECT_FALSE(world.come(link, voter("paris")));
  EXPECT_TRUE(world.pass(seconds(3)));
}

// ---- left ------------------------------------------------------------------------------------------

wire::Join knows_left(const std::string& name, const std::string& left) {
  wire::Join join = voter(name);
  for (wire::Voter& other : join.report.record.voters) other.left = other.name == left;
  return join;
}

TEST(HasLeft, CountsByNameForGood) {
  ElectionWorld world;
  static_cast<void>(world.come(1, knows_left("paris", "lima")));
  EXPECT_THAT(world.prepared(), IsEmpty()) << "two of three by name, and one record is less than half of three";
  EXPECT_FALSE(world.come(2, knows_left("tokyo", "lima")));
  EXPECT_TRUE(world.elect());
}

// Of two, the one that stays has half of the records, and both names.
TEST(HasLeft, ASiteContinuesAloneOnceTheOtherOfTwoHasLeft) {
  ElectionWorld world;
  wire::Join paris = voter("paris", 1, {"paris", "tokyo"});
  paris.report.record.voters[1].left = true;
  EXPECT_FALSE(world.come(1, paris));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_TRUE(elected->voters[1].left);
  EXPECT_EQ(elected->new_run, "");
}

// Each was told of another one that left, before their leader was lost.
TEST(HasLeft, MergesWhatEachSiteKnows) {
  ElectionWorld world;
  wire::Join paris = voter("paris", 1, kFive);
  paris.report.record.voters[3].left = true;
  wire::Join tokyo = voter("tokyo", 1, kFive);
  tokyo.report.record.voters[4].left = true;
  wire::Join lima = voter("lima", 1, kFive);
  static_cast<void>(world.come(1, paris));
  static_cast<void>(world.come(2, tokyo));
  static_cast<void>(world.come(3, lima));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_TRUE(elected->voters[3].left);
  EXPECT_TRUE(elected->voters[4].left);
  EXPECT_FALSE(elected->voters[2].left);
}

// It left the run before, or with a memory that counts no more.
TEST(HasLeft, CountsOnlyForTheSameAnchorAndAcceptor) {
  ElectionWorld world;
  wire::Join old = voter("tokyo");
  old.report.record.anchor.round = RoundId{3};
  old.report.record.voters[2].left = true;
  wire::Join lima = voter("lima");
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, old));
  static_cast<void>(world.come(3, lima));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_FALSE(elected->voters[2].left);
}

// ---- whose swarm stays -----------------------------------------------------------------------------

// Of the anchor of an election result after both have come, each of whom could go on by itself.
wire::Offer stays(const wire::Offer& a, const wire::Offer& b, std::size_t voters_of_b = 1) {
  ElectionWorld world;
  static_cast<void>(world.come(1, member_of("paris", a, voters_of({"paris"}))));
  std::vector<wire::Voter> list = voters_of({"tokyo"});
  for (std::uint32_t i = 1; i < voters_of_b; ++i) {
    list.push_back({SiteId{i}, "left" + std::to_string(i), AcceptorId{i}, true});
  }
  static_cast<void>(world.come(2, member_of("tokyo", b, list)));
  const auto elected = world.elect();
  return elected ? elected->anchor : wire::Offer{};
}

TEST(TwoSwarms, TheOneThatHasAgreedMoreOftenStays) {
  const wire::Offer trained{RunId{3}, RoundId{9}, kRight};
  const wire::Offer fresh{RunId{8}, RoundId{2}, kWrong};
  EXPECT_EQ(stays(trained, fresh), trained);
  EXPECT_EQ(stays(fresh, trained), trained);
}

TEST(TwoSwarms, WithEqualRoundsTheLaterRunStays) {
  const wire::Offer earlier{RunId{3}, RoundId{2}, kRight};
  const wire::Offer later{RunId{8}, RoundId{2}, kWrong};
  EXPECT_EQ(stays(earlier, later), later);
  EXPECT_EQ(stays(later, earlier), later);
}

TEST(TwoSwarms, WithoutAgreementTheLargerStays) {
  const wire::Offer larger{RunId{3}, RoundId{0}, kRight};
  const wire::Offer later{RunId{8}, RoundId{0}, kWrong};
  EXPECT_EQ(stays(later, larger, 2), larger);
  EXPECT_EQ(stays(larger, later), later);
}

// It was committed, and the first to apply the commit has told the others what came of it.
TEST(TwoSwarms, TheNewestAnchorsDigestIsTakenFromASiteThatKnowsIt) {
  ElectionWorld world;
  wire::Join paris = voter("paris");
  paris.report.record.anchor.digest = {};
  static_cast<void>(world.come(1, paris));
  static_cast<void>(world.come(2, voter("tokyo")));
  EXPECT_EQ(world.elect()->anchor.digest, kRight);
}

// ---- time, words, the end --------------------------------------------------------------------------

TEST(ElectionTime, NothingIsDueWithoutSites) {
  ElectionWorld world;
  EXPECT_EQ(world.election.next_deadline(world.now), kNever);
  static_cast<void>(world.come(1, voter("paris")));
  EXPECT_EQ(world.election.next_deadline(world.now), world.now + seconds(10)) << "a line";
  static_cast<void>(world.go(1));
  EXPECT_EQ(world.election.next_deadline(world.now), kNever);
  EXPECT_EQ(world.election.waiting(world.now + seconds(100)), std::nullopt);
}

// It was asked for a promise by those who have gone since: the time for it is over, and nothing comes of that.
TEST(ElectionTime, APassedDeadlineIsNotDueAgain) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  static_cast<void>(world.come(3, fresh("oslo")));
  world.now += seconds(10);
  static_cast<void>(world.go(1));
  static_cast<void>(world.go(2));
  world.now += seconds(51);
  world.election.heard(world.now, LinkId{3});
  EXPECT_FALSE(world.advance());
  static_cast<void>(world.election.waiting(world.now));
  EXPECT_GT(world.election.next_deadline(world.now), world.now);
}

TEST(ElectionTime, AWaitForASilentSiteIsExplained) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  EXPECT_FALSE(world.pass(seconds(11)));
  EXPECT_THAT(world.lines, AllOf(HasSubstr("waiting for a leader to be elected"), Not(HasSubstr("records"))));
}

TEST(ElectionEnd, NothingIsKeptOnceAllApplicantsHaveGone) {
  ElectionWorld world;
  wire::Join helper = join_of("helper");
  helper.helper = true;
  static_cast<void>(world.come(1, voter("paris")));
  world.election.add_applicant(world.now, LinkId{2}, helper);
  EXPECT_EQ(world.election.trainers(), 1U);
  EXPECT_EQ(world.election.names(), (std::vector<std::string>{"paris", "helper"}));
  static_cast<void>(world.advance());
  EXPECT_EQ(world.election.dismiss().size(), 2U);
  EXPECT_TRUE(world.election.empty());
  EXPECT_FALSE(world.election.has(LinkId{1}));
  const auto elected = world.come(3, join_of("oslo"));
  ASSERT_TRUE(elected) << "of another generation: what those knew counts for nothing";
  EXPECT_TRUE(elected->founded);
}

TEST(ElectionEnd, ATermThatWasBegunIsNotBegunAgain) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  static_cast<void>(world.promise(1));
  static_cast<void>(world.promise(2));
  const TermId begun = world.term();
  ASSERT_EQ(world.asked_to_accept().size(), 2U);
  EXPECT_EQ(world.election.dismiss().size(), 2U);
  static_cast<void>(world.come(3, voter("paris")));
  static_cast<void>(world.come(4, voter("tokyo")));
  EXPECT_GT(world.term(), begun) << "those who went may have accepted something under it";
}

}  // namespace
}  // namespace collab::protocol
