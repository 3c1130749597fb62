// Sites that claim more rounds than the others know, and sites that come again and again.
#include <gmock/gmock.h>

#include "tests/unit/protocol/election_world.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Lima's record names a later round of the same run, and whom it likes as the membership of it.
wire::Join claims(std::uint64_t round, const std::vector<std::string>& names, RunId run = kAnchor.run) {
  return member_of("lima", {run, RoundId{round}, kWrong}, voters_of(names));
}
struct Claim : ElectionWorld {
  Claim() {
    static_cast<void>(come(1, voter("paris")));
    static_cast<void>(come(2, voter("tokyo")));
  }
};

TEST(ElectionClaims, ALaterRoundThatThePromisesDisproveHoldsNobodyUp) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(3, claims(6, kNames)));
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor, kAnchor);
  ASSERT_EQ(elected->applicants.size(), 3U);
  EXPECT_EQ(
      std::ranges::count_if(elected->applicants, [&](const auto& applicant) { return elected->disproves(applicant); }),
      1);
}

// What is agreed on after they promised they need not know.
TEST(ElectionClaims, AClaimAfterThePromisesIsNotDisproved) {
  Claim world;
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.promise(2));
  EXPECT_FALSE(world.come(3, claims(5, kNames)));
  EXPECT_FALSE(world.accept(1));
  const auto elected = world.accept(2);
  ASSERT_TRUE(elected);
  EXPECT_FALSE(elected->disproves(elected->applicants.back()));
}

// With one of the others it would be enough.
TEST(ElectionClaims, ThePromisesThatCanDisproveItAreWaitedFor) {
  for (const bool answers : {true, false}) {
    Claim world;
    EXPECT_FALSE(world.come(3, claims(6, kNames)));
    EXPECT_FALSE(world.promise(3));
    EXPECT_FALSE(world.promise(1));
    EXPECT_THAT(world.asked_to_accept(), IsEmpty());
    EXPECT_FALSE(world.pass(seconds(30)));
    EXPECT_THAT(world.asked_to_accept(), IsEmpty());
    EXPECT_FALSE(answers ? world.promise(2) : world.go(2));
    EXPECT_FALSE(world.accept(1));
    const auto elected = world.accept(answers ? 2 : 3);
    ASSERT_TRUE(elected);
    EXPECT_EQ(elected->anchor.round, RoundId{answers ? 4U : 6U});
  }
}

TEST(ElectionClaims, AClaimingSiteThatNeverPromisesDelaysNobody) {
  Claim world;
  EXPECT_FALSE(world.come(3, claims(6, kNames)));
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.promise(2));
  EXPECT_FALSE(world.accept(1));
  const auto elected = world.accept(2);
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor, kAnchor);
}

// Of two of three nobody can tell: what the third has agreed on with one that is away may be so.
TEST(ElectionClaims, AClaimingSiteNeededForAMajorityIsBelieved) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  EXPECT_FALSE(world.come(3, claims(6, kNames)));
  EXPECT_FALSE(world.pass(seconds(1000)));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor.round, RoundId{6});
}

TEST(ElectionClaims, AClaimOfAnAbsentMembershipDelaysTheElectionByAGrace) {
  Claim world;
  EXPECT_FALSE(world.come(3, claims(6, {"lima", "oslo", "rome"})));
  EXPECT_THAT(world.lines, IsEmpty());
  EXPECT_FALSE(world.pass(seconds(59)));
  EXPECT_FALSE(world.elect()) << "the round may have been agreed on by others";
  for (const std::uint64_t link : {1, 2, 3}) world.election.heard(world.now, LinkId{link});
  EXPECT_FALSE(world.pass(seconds(2)));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor, kAnchor);
}

TEST(ElectionClaims, AClaimOfAnotherRunDelaysTheElectionByAGrace) {
  for (const bool with_itself : {true, false}) {
    Claim world;
    const std::vector<std::string> names{"lima", "oslo"};
    static_cast<void>(world.come(3, with_itself ? claims(90, {"lima"}, RunId{9}) : claims(90, names, RunId{9})));
    static_cast<void>(world.promise(1));
    static_cast<void>(world.promise(2));
    EXPECT_FALSE(world.pass(seconds(59)));
    for (const std::uint64_t link : {1, 2, 3}) world.election.heard(world.now, LinkId{link});
    std::optional<ElectionResult> elected = world.pass(seconds(2));
    for (const std::uint64_t link : {1, 2}) static_cast<void>(world.promise(link));
    for (const std::uint64_t link : {1, 2}) elected = elected ? std::move(elected) : world.accept(link);
    ASSERT_TRUE(elected) << with_itself;
    EXPECT_EQ(elected->anchor, kAnchor);
    EXPECT_FALSE(elected->disproves(elected->applicants.back()))
        << "another run's rounds are nothing that it decides on";
  }
}

// It would be led by its own claim, once it has accepted that; meanwhile the others wait.
TEST(ElectionClaims, ASiteThatPromisesAndNeverAcceptsIsWaitedForForAGrace) {
  Claim world;
  static_cast<void>(world.come(3, claims(90, {"lima"}, RunId{9})));
  for (const std::uint64_t link : {3, 1, 2}) EXPECT_FALSE(world.promise(link));
  for (const std::uint64_t link : {1, 2}) EXPECT_FALSE(world.accept(link)) << "the claim is what was to be accepted";
  EXPECT_FALSE(world.pass(seconds(59)));
  for (const std::uint64_t link : {1, 2, 3}) world.election.heard(world.now, LinkId{link});
  std::optional<ElectionResult> elected = world.pass(seconds(2));
  for (const std::uint64_t link : {1, 2}) static_cast<void>(world.promise(link));
  for (const std::uint64_t link : {1, 2}) elected = elected ? std::move(elected) : world.accept(link);
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor, kAnchor);
}

// A minority is not taken over by a site that has founded a swarm of its own, nor by one that says so.
TEST(ElectionClaims, FewerSitesWithAnOlderAgreementDoNotSetAsideThoseThatWait) {
  ElectionWorld world;
  const std::vector<std::string> five{"paris", "tokyo", "kyiv", "oslo", "rome"};
  for (const std::uint64_t link : {1, 2}) static_cast<void>(world.come(link, voter(five[link - 1], 1, five)));
  static_cast<void>(world.come(3, claims(2, {"lima"}, RunId{9})));
  EXPECT_FALSE(world.pass(seconds(1000)));
  EXPECT_FALSE(world.elect());
}

// Anyone with the name of an absent voter, and without a record, would have the term begun anew each time.
TEST(ElectionClaims, LateArrivalsDoNotDisturbATermThatHasEnoughSites) {
  Claim world;
  const TermId begun = world.term();
  for (std::uint64_t link = 3; link < 9; ++link) {
    const wire::Join lima = link % 2 == 0 ? forgetful("lima") : voter("lima", 100 * link);
    EXPECT_FALSE(world.come(link, lima));
    EXPECT_FALSE(link < 6 ? world.promise(1) : world.promise(2));
    EXPECT_EQ(world.term(), begun);
    static_cast<void>(world.go(link));
  }
  EXPECT_FALSE(world.accept(1));
  EXPECT_TRUE(world.accept(2));
}

TEST(ElectionClaims, ATermBeginsAnewForLateArrivalsAfterThreeSeconds) {
  Claim world;
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.come(3, forgetful("lima")));
  EXPECT_FALSE(world.promise(3)) << "it came too late for this term";
  EXPECT_THAT(world.asked_to_accept(), IsEmpty());
  const TermId begun = world.term();
  EXPECT_FALSE(world.pass(seconds(4)));
  EXPECT_EQ(world.term(), TermId{begun.value + 1});
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.promise(2));
  EXPECT_EQ(world.asked_to_accept().size(), 2U);
}

TEST(ElectionClaims, ASiteTooLateForATermDoesNotCountInIt) {
  Claim world;
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.come(3, forgetful("lima")));
  EXPECT_FALSE(world.promise(3));
  EXPECT_FALSE(world.promise(2));
  EXPECT_THAT(world.asked_to_accept(), ElementsAre(std::pair(1, 2), std::pair(2, 2)));
  EXPECT_FALSE(world.accept(1));
  world.hear(3, wire::Accepted{world.term()});
  EXPECT_FALSE(world.advance());
  EXPECT_TRUE(world.accept(2));
}

// What is left when one is set aside cannot elect either, until the other is.
TEST(ElectionClaims, TwoClaimsAtOnceDelayTheElectionByAGraceAtMost) {
  ElectionWorld world;
  const std::vector<std::string> five{"paris", "tokyo", "kyiv", "lima", "rome"};
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(world.come(link, voter(five[link - 1], 1, five)));
  static_cast<void>(world.come(4, claims(6, five)));
  static_cast<void>(
      world.come(5, member_of("oslo", {RunId{9}, RoundId{5}, kWrong}, voters_of({"oslo", "bern", "oran"}))));
  for (std::uint64_t link = 1; link <= 3; ++link) EXPECT_FALSE(world.promise(link));
  std::optional<ElectionResult> elected = world.pass(seconds(62));
  for (std::uint64_t link = 1; link <= 3; ++link) elected = elected ? std::move(elected) : world.promise(link);
  for (std::uint64_t link = 1; link <= 3; ++link) elected = elected ? std::move(elected) : world.accept(link);
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor, kAnchor);
}

// Of another run, and a later round than most of those here know; what it was started from again has no record.
wire::Join of_an_older_run(const std::string& name) {
  wire::Join join = member_of(name, {RunId{6}, RoundId{5}, kWrong}, voters_of({"oslo", "rome"}));
  join.report.record.acceptor = acceptor_of(name, 1);
  return join;
}

// Lima alone has heard that round 5 was committed; without it another run's round 5 would come before round 4.
TEST(ElectionClaims, AClaimTheOthersMayHaveAgreedOnIsNotDisproved) {
  ElectionWorld world;
  const wire::Proposal done{SiteHarness::start(5, 1, 3), true, {{5, 5}, {6, 6}, {7, 7}}};
  for (const std::uint64_t link : {1, 2}) {
    wire::Join join = voter(kNames[link - 1]);
    join.report.record.proposals.push_back(done);
    static_cast<void>(world.come(link, join));
  }
  static_cast<void>(world.come(3, claims(5, kNames)));
  static_cast<void>(world.come(4, of_an_older_run("oslo")));
  static_cast<void>(world.come(5, of_an_older_run("rome")));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->new_run, "");
  EXPECT_EQ(elected->anchor.run, kAnchor.run);
  EXPECT_EQ(elected->round(), RoundId{5});
}

// Each time that it is counted again it seems to be enough; what it says does not come true, and the records do not
// come.
TEST(ElectionClaims, ARepeatedlyDisprovedClaimDoesNotProlongTheWaitForRecords) {
  Claim world;
  static_cast<void>(world.come(3, claims(6, kNames)));
  static_cast<void>(world.come(4, of_an_older_run("oslo")));
  static_cast<void>(world.come(5, of_an_older_run("rome")));
  for (std::uint64_t link = 1; link <= 5; ++link) EXPECT_FALSE(world.promise(link));
  EXPECT_FALSE(world.pass(seconds(59)));
  for (std::uint64_t link = 1; link <= 5; ++link) world.election.heard(world.now, LinkId{link});
  const auto elected = world.pass(seconds(2));
  ASSERT_TRUE(elected);
  EXPECT_THAT(elected->new_run, testing::HasSubstr("too few of the sites here have kept their records"));
}

// The sites that are here know of no membership, so they wait for the one it names. An operator can say that this one
// will not come.
TEST(ElectionClaims, AClaimingSiteThatNeverPromisesIsMissingAndMayBeForgotten) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(3, claims(90, {"lima"}, RunId{9})));
  for (const std::uint64_t link : {1, 2}) EXPECT_FALSE(world.come(link, fresh(kNames[link - 1])));
  EXPECT_FALSE(world.pass(seconds(59)));
  EXPECT_THAT(world.election.missing(), IsEmpty());
  EXPECT_FALSE(world.pass(seconds(2)));
  EXPECT_THAT(world.election.missing(), ElementsAre("lima"));
  EXPECT_THAT(world.election.waiting_text(world.now), testing::HasSubstr("collab forget lima"));
  world.election.forget({"lima"});
  const auto elected = world.advance();
  ASSERT_TRUE(elected);
  EXPECT_NE(elected->new_run, "");
}

// Those it names are here, and promise; it does not.
TEST(ElectionClaims, AnUnpromisedClaimOfOneSiteIsSetAsideAfterAGrace) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris", 1, {"paris"})));
  EXPECT_FALSE(world.come(3, claims(90, {"paris"}, RunId{9})));
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.pass(seconds(59)));
  EXPECT_THAT(world.asked_to_accept(), IsEmpty());
  EXPECT_FALSE(world.pass(seconds(2)));
  const auto elected = world.accept(1);
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor, kAnchor);
  EXPECT_EQ(elected->new_run, "");
}

// The term may be old; it has been asked just now.
TEST(ElectionClaims, ALateSiteHasAGraceToPromise) {
  ElectionWorld world;
  for (const std::uint64_t link : {1, 2}) EXPECT_FALSE(world.come(link, voter(kNames[link - 1])));
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.go(2));
  EXPECT_FALSE(world.pass(seconds(100)));
  EXPECT_FALSE(world.come(3, voter("tokyo")));
  EXPECT_FALSE(world.pass(seconds(59)));
  EXPECT_THAT(world.election.missing(), ElementsAre("lima"));
  EXPECT_FALSE(world.pass(seconds(2)));
  EXPECT_THAT(world.election.missing(), ElementsAre("tokyo", "lima"));
}

TEST(ElectionClaims, ASiteThatPromisedAnOlderTermIsAskedAgain) {
  Claim world;
  for (const std::uint64_t link : {1, 2}) EXPECT_FALSE(world.promise(link));
  EXPECT_FALSE(world.pass(seconds(61)));
  EXPECT_FALSE(world.go(2));
  EXPECT_FALSE(world.come(3, voter("lima")));
  EXPECT_TRUE(world.elect());
}

TEST(ElectionClaims, ALatePromiseCounts) {
  ElectionWorld world;
  for (const std::uint64_t link : {1, 2}) EXPECT_FALSE(world.come(link, voter(kNames[link - 1])));
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.pass(seconds(61)));
  EXPECT_THAT(world.election.missing(), ElementsAre("tokyo", "lima"));
  EXPECT_TRUE(world.elect());
}

// To come and go, and under other names, gains no time.
TEST(ElectionClaims, ComingAgainDoesNotBeginTheGraceAnew) {
  ElectionWorld world;
  for (std::uint64_t link = 3; link < 12; ++link) {
    EXPECT_FALSE(world.come(link, claims(link, {"lima", "oslo", "rome"})));
    for (const std::uint64_t member : {1, 2}) {
      if (link > 3) continue;
      EXPECT_FALSE(world.come(member, voter(kNames.at(member - 1))));
    }
    EXPECT_FALSE(world.pass(seconds(7)));
    for (const std::uint64_t member : {1, 2}) world.election.heard(world.now, LinkId{member});
    if (link < 11) static_cast<void>(world.go(link));
  }
  EXPECT_FALSE(world.elect()) << "they had not answered for a grace";
  static_cast<void>(world.pass(seconds(1)));
  EXPECT_TRUE(world.elect());
}

// Those who could do without it have gone meanwhile.
TEST(ElectionClaims, AClaimSetAsideCountsAgainWhenNeeded) {
  Claim world;
  EXPECT_FALSE(world.come(3, claims(6, kNames)));
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.promise(2));  // disproved by now
  EXPECT_FALSE(world.go(2));
  const auto elected = world.elect();
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor.round, RoundId{6});
}

// Lima, the only one that knows of round 5, is slow to accept, and tokyo to promise. Round 5 may have been committed:
// to go on from round 4 under another name would lose it.
TEST(ElectionClaims, AClaimSetAsideCountsAgainIfTheOthersDoNotAnswer) {
  Claim world;
  static_cast<void>(world.come(3, claims(5, kNames)));
  world.election.forget({"tokyo"});
  for (int half_a_grace = 0; half_a_grace < 20; ++half_a_grace) {
    for (const std::uint64_t link : {1, 3}) EXPECT_FALSE(world.promise(link));
    EXPECT_FALSE(world.accept(1));
    for (const std::uint64_t link : {1, 2, 3}) world.election.heard(world.now, LinkId{link});
    EXPECT_FALSE(world.pass(seconds(30))) << half_a_grace;
  }
  std::optional<ElectionResult> elected;
  for (int attempt = 0; attempt < 4 && !elected; ++attempt) {
    for (const std::uint64_t link : {1, 3}) static_cast<void>(world.promise(link));
    for (const std::uint64_t link : {1, 3}) elected = elected ? std::move(elected) : world.accept(link);
    if (!elected) elected = world.pass(seconds(30));
  }
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor.round, RoundId{5});
}

// A look at all of them for twenty bytes, time after time, would leave no time for the others.
TEST(ElectionClaims, AnAnswerThatChangesNothingIsRecognised) {
  Claim world;
  EXPECT_FALSE(world.election.on_accepted(LinkId{1}, wire::Accepted{world.term()})) << "nothing was to be accepted";
  const wire::Promise promise{world.term(), world.said.at(1).offer, world.said.at(1).report};
  EXPECT_TRUE(world.election.on_promise(LinkId{1}, promise));
  EXPECT_FALSE(world.election.on_promise(LinkId{1}, promise)) << "for the second time";
  EXPECT_FALSE(world.election.on_promise(LinkId{9}, promise)) << "nobody is there";
  EXPECT_FALSE(world.promise(2));
  EXPECT_TRUE(world.election.on_accepted(LinkId{1}, wire::Accepted{world.term()}));
  EXPECT_FALSE(world.election.on_accepted(LinkId{1}, wire::Accepted{world.term()}));
}

}  // namespace
}  // namespace collab::protocol
