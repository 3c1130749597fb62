// Which candidate may lead, under which term, and which of its predecessors' work it has to finish.
#include "core/protocol/agreement/election.h"

#include <gmock/gmock.h>

#include "tests/unit/protocol/election_world.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<Digest> kMean{{5, 5}, {6, 6}, {7, 7}};

// An attempt of all three at the round after the anchor.
wire::StartAttempt attempt(std::uint32_t number = 1, std::uint64_t term = 1) {
  wire::StartAttempt start = SiteHarness::start(5, number, 3);
  start.term = TermId{term};
  return start;
}
wire::Join knows(wire::Join join, const wire::StartAttempt& start, bool accepted) {
  join.report.record.proposals.push_back({start, accepted, accepted ? kMean : std::vector<Digest>{}});
  return join;
}

// ---- founding --------------------------------------------------------------------------------------

TEST(Election, ASwarmIsFoundedIfNoSiteKnowsOfAMembership) {
  ElectionWorld world;
  wire::Join other = join_of("paris");
  other.report.record.promised = TermId{9};
  const auto elected = world.come(1, other);
  ASSERT_TRUE(elected);
  EXPECT_TRUE(elected->founded);
  EXPECT_EQ(elected->term, TermId{10}) << "above all that was promised";
  EXPECT_THAT(elected->voters, IsEmpty());
  ASSERT_EQ(elected->applicants.size(), 1U);
  EXPECT_EQ(elected->applicants[0].link, LinkId{1});
  EXPECT_TRUE(world.election.empty());
  EXPECT_GT(world.election.term(), elected->term);
}

// ---- two phases ------------------------------------------------------------------------------------

TEST(Election, AMinorityWaits) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris")));
  EXPECT_THAT(world.prepared(), IsEmpty());
  EXPECT_FALSE(world.pass(seconds(1000)));
  EXPECT_THAT(world.lines, HasSubstr("waiting for more than half of the sites that agreed last: 1 of the 3 sites that "
                                     "agreed on round 4 are here; missing: tokyo, lima"));
  EXPECT_THAT(world.lines, HasSubstr("collab forget tokyo lima"));
}

TEST(Election, MostPromiseThenAcceptThenItLeads) {
  ElectionWorld world;
  EXPECT_FALSE(world.come(1, voter("paris", 3)));
  EXPECT_FALSE(world.come(2, voter("tokyo", 5)));
  EXPECT_THAT(world.prepared(), ElementsAre(std::pair(1, 6), std::pair(2, 6))) << "above all that was promised";
  EXPECT_FALSE(world.promise(1));
  EXPECT_THAT(world.asked_to_accept(), IsEmpty());
  EXPECT_FALSE(world.promise(2));
  EXPECT_THAT(world.asked_to_accept(), ElementsAre(std::pair(1, 6), std::pair(2, 6)));
  EXPECT_FALSE(world.accept(1));
  const auto elected = world.accept(2);
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->term, TermId{6});
  EXPECT_FALSE(elected->founded);
  EXPECT_EQ(elected->new_run, "");
  EXPECT_EQ(elected->anchor, kAnchor);
  EXPECT_EQ(elected->voters, voters_of(kNames));
  EXPECT_FALSE(elected->settled);
  EXPECT_EQ(elected->applicants.size(), 2U);
}

TEST(Election, PromisesOfAnotherTermDoNotCount) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  world.hear(1, wire::Promise{TermId{1}, kAnchor, voter("paris").report});
  world.hear(2, wire::Promise{TermId{3}, kAnchor, voter("tokyo").report});
  EXPECT_FALSE(world.advance());
  EXPECT_THAT(world.asked_to_accept(), IsEmpty());
  world.hear(1, wire::Accepted{TermId{2}});
  EXPECT_FALSE(world.promise(1));
  EXPECT_FALSE(world.promise(2));
  world.hear(2, wire::Accepted{TermId{1}});
  EXPECT_FALSE(world.accept(1)) << "tokyo has accepted under another term";
  EXPECT_TRUE(world.accept(2));
}

// What counts of the past was decided from those who had promised: who comes later changes nothing of it.
TEST(Election, SitesThatPromisedAreFrozen) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  static_cast<void>(world.promise(1));
  static_cast<void>(world.promise(2));
  wire::Join ahead = voter("lima");
  ahead.report.record.anchor.round = RoundId{5};
  EXPECT_FALSE(world.come(3, ahead));
  EXPECT_EQ(world.prepared().size(), 2U);
  world.hear(3, wire::Promise{world.term(), ahead.offer, ahead.report});
  world.hear(3, wire::Accepted{world.term()});
  EXPECT_FALSE(world.accept(1)) << "lima's word is not one of those";
  const auto elected = world.accept(2);
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->anchor.round, RoundId{4});
  EXPECT_EQ(elected->applicants.size(), 3U) << "the leader hears of it from its Join";
}

// What it has accepted on this link is in its next promise, and not in the Join it came with. Lima has not accepted the
// attempt itself, which rules that out; what paris accepted under the term between is newer than that.
TEST(Election, APromiseHoldsWhatWasAcceptedSinceTheSiteCame) {
  ElectionWorld world;
  static_cast<void>(world.come(1, knows(voter("paris"), attempt(), true)));
  static_cast<void>(world.come(2, knows(voter("tokyo"), attempt(), true)));
  static_cast<void>(world.promise(1));
  static_cast<void>(world.promise(2));
  ASSERT_EQ(world.accepts().size(), 2U);
  EXPECT_FALSE(world.accept(1));
  EXPECT_FALSE(world.go(2)) << "before it has accepted";
  EXPECT_FALSE(world.come(3, voter("lima")));
  for (const std::uint64_t link : {1, 3}) static_cast<void>(world.promise(link));
  static_cast<void>(world.accept(1));
  const auto elected = world.accept(3);
  ASSERT_TRUE(elected);
  ASSERT_TRUE(elected->settled);
  EXPECT_EQ(elected->settled->start, attempt());
  EXPECT_FALSE(elected->given_up);
}

TEST(Election, ASiteOfThreeMayLeaveAfterItsPromise) {
  ElectionWorld world;
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(world.come(link, voter(kNames[link - 1])));
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(world.promise(link));
  const TermId term = world.term();
  EXPECT_FALSE(world.go(3));
  EXPECT_EQ(world.term(), term);
  EXPECT_FALSE(world.accept(1));
  EXPECT_TRUE(world.accept(2));
}

TEST(Election, BeginsAnewIfTooManyOfThemLeave) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  static_cast<void>(world.promise(1));
  static_cast<void>(world.promise(2));
  const TermId before = world.term();
  EXPECT_FALSE(world.go(2));
  EXPECT_FALSE(world.accept(1));
  EXPECT_FALSE(world.come(3, voter("lima")));
  EXPECT_GT(world.term(), before);
  EXPECT_THAT(world.prepared(), testing::Contains(std::pair(1, static_cast<int>(world.term().value))))
      << "paris is asked again";
  static_cast<void>(world.promise(1));
  static_cast<void>(world.promise(3));
  static_cast<void>(world.accept(1));
  EXPECT_TRUE(world.accept(3));
}

// It promised, went, and is back: its promise was given over a link that is no more.
TEST(Election, AReturningSitePromisesAgain) {
  ElectionWorld world;
  static_cast<void>(world.come(1, voter("paris")));
  static_cast<void>(world.come(2, voter("tokyo")));
  static_cast<void>(world.promise(1));
  const TermId before = world.term();
  EXPECT_FALSE(world.come(4, voter("paris", before.value)));
  EXPECT_EQ(world.replaced, LinkId{1});
  EXPECT_FALSE(world.election.has(LinkId{1}));
  EXPECT_GT(world.term(), before) << "it has promised that one, and would not again";
  static_cast<void>(world.promise(2));
  EXPECT_FALSE(world.promise(4));
  EXPECT_FALSE(world.accept(2));
  EXPECT_TRUE(world.accept(4));
}

// ---- what is settled -------------------------------------------------------------------------------

// The election result of paris and tokyo with what each knows; the third is not here.
std::optional<ElectionResult> elect_two(ElectionWorld& world, const wire::Join& paris, const wire::Join& tokyo) {
  static_cast<void>(world.come(1, paris));
  static_cast<void>(world.come(2, tokyo));
  static_cast<void>(world.promise(1));
  static_cast<void>(world.promise(2));
  static_cast<void>(world.accept(1));
  return world.accept(2);
}

TEST(Election, ADecisionAcceptedByAllHereIsSettled) {
  ElectionWorld world;
  const auto elected = elect_two(world, knows(voter("paris"), attempt(), true), knows(voter("tokyo"), attempt(), true));
  ASSERT_TRUE(elected);
  ASSERT_TRUE(elected->settled);
  EXPECT_EQ(elected->settled->start, attempt());
  EXPECT_EQ(elected->settled->slices, kMean);
  EXPECT_FALSE(elected->given_up);
  ASSERT_EQ(world.accepts().size(), 2U);
  const wire::Accept asked = world.accepts()[0];
  ASSERT_EQ(asked.proposals.size(), 1U);
  EXPECT_TRUE(asked.proposals[0].accepted);
  EXPECT_EQ(asked.proposals[0].settled, asked.term) << "accepted once more, under the new term";
}

TEST(Election, AVoterThatHasNotAcceptedAnAttemptRulesItOut) {
  ElectionWorld world;
  const auto elected =
      elect_two(world, knows(voter("paris"), attempt(), true), knows(voter("tokyo"), attempt(), false));
  ASSERT_TRUE(elected);
  EXPECT_FALSE(elected->settled);
  ASSERT_TRUE(elected->given_up);
  EXPECT_EQ(*elected->given_up, attempt());
  EXPECT_THAT(world.accepts().at(0).proposals, IsEmpty());
}

TEST(Election, AVoterThatHasNeverHeardOfAnAttemptRulesItOutToo) {
  ElectionWorld world;
  const auto elected = elect_two(world, knows(voter("paris"), attempt(), true), voter("tokyo"));
  ASSERT_TRUE(elected);
  EXPECT_FALSE(elected->settled);
  EXPECT_TRUE(elected->given_up);
}

TEST(Election, AVoterThatHasAcceptedAnotherMeanRulesTheAttemptOut) {
  ElectionWorld world;
  wire::Join tokyo = knows(voter("tokyo"), attempt(), true);
  tokyo.report.record.proposals[0].slices[1] = kWrong;
  EXPECT_FALSE(elect_two(world, knows(voter("paris"), attempt(), true), tokyo)->settled);
}

TEST(Election, AnAbsentSiteDoesNotRuleADecisionOut) {
  for (const bool takes_part : {true, false}) {
    ElectionWorld world;
    wire::StartAttempt start = attempt();
    start.participants[1].here = takes_part;  // it contributed, was lost, and is not waited for
    const auto elected = elect_two(world, knows(voter("paris"), start, true), voter("tokyo"));
    ASSERT_TRUE(elected);
    EXPECT_EQ(elected->settled.has_value(), !takes_part);
  }
}

TEST(Election, AVoterThatHasLostItsRecordDoesNotRuleAnAttemptOut) {
  ElectionWorld world;
  static_cast<void>(world.come(1, knows(voter("paris"), attempt(), true)));
  static_cast<void>(world.come(2, forgetful("tokyo")));
  static_cast<void>(world.come(3, knows(voter("lima"), attempt(), true)));
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(world.promise(link));
  static_cast<void>(world.accept(1));
  const auto elected = world.accept(3);
  ASSERT_TRUE(elected);
  EXPECT_TRUE(elected->settled) << "it may have accepted it";
}

// The first successor settles it with paris and tokyo and dies; the second never hears of paris.
TEST(Election, APredecessorsDecisionStaysThoughOneSiteHadNotAcceptedIt) {
  ElectionWorld first;
  const auto paris = knows(voter("paris"), attempt(), true);
  const auto tokyo = knows(voter("tokyo"), attempt(), true);
  ASSERT_TRUE(elect_two(first, paris, tokyo));
  ElectionWorld second;
  const auto elected = elect_two(second, first.said.at(2), knows(voter("lima"), attempt(), false));
  ASSERT_TRUE(elected);
  ASSERT_TRUE(elected->settled);
  EXPECT_EQ(elected->settled->start, attempt());
  EXPECT_GT(elected->term, first.said.at(1).report.record.promised);
}

// A ballot is the term an attempt was proposed under last, then its number.
TEST(Election, TheNewestAttemptCounts) {
  ElectionWorld by_term;
  auto elected = elect_two(by_term, knows(voter("paris", 2), attempt(1, 1), true),
                           knows(voter("tokyo", 2), attempt(1 << 16, 2), false));
  ASSERT_TRUE(elected && elected->given_up);
  EXPECT_EQ(elected->given_up->term, TermId{2});
  ElectionWorld by_number;
  elected = elect_two(by_number, knows(voter("paris"), attempt(1), true), knows(voter("tokyo"), attempt(2), false));
  ASSERT_TRUE(elected && elected->given_up);
  EXPECT_EQ(elected->given_up->attempt, AttemptId{2});
  ElectionWorld settled;  // of term 1, and again under term 3
  wire::Join tokyo = knows(voter("tokyo", 3), attempt(1, 1), true);
  tokyo.report.record.proposals[0].settled = TermId{3};
  elected = elect_two(settled, knows(voter("paris", 2), attempt(1 << 16, 2), true), tokyo);
  ASSERT_TRUE(elected && elected->settled);
  EXPECT_EQ(elected->settled->start.term, TermId{1});
}

TEST(Election, AttemptsAtOtherRoundsAreOldNews) {
  ElectionWorld world;
  wire::StartAttempt old = attempt();
  old.round = RoundId{4};
  wire::StartAttempt other = attempt();
  other.run = RunId{6};
  const auto elected = elect_two(world, knows(voter("paris"), old, true), knows(voter("tokyo"), other, true));
  ASSERT_TRUE(elected);
  EXPECT_FALSE(elected->settled);
  EXPECT_FALSE(elected->given_up);
}

// Where the round may be decided, the membership that decides on the one after it is asked, too.
TEST(Election, TheMembershipThatTheSettledAttemptNamesIsAskedAsWell) {
  ElectionWorld world;
  wire::StartAttempt grown = attempt();
  grown.voters = voters_of({"paris", "tokyo", "lima", "oslo", "rome"});
  static_cast<void>(world.come(1, knows(voter("paris"), grown, true)));
  static_cast<void>(world.come(2, knows(voter("tokyo"), grown, true)));
  EXPECT_THAT(world.prepared(), IsEmpty()) << "two of five";
  EXPECT_FALSE(world.come(3, join_of("oslo")));
  for (const std::uint64_t link : {1, 2, 3}) EXPECT_FALSE(world.promise(link));
  for (const std::uint64_t link : {1, 2}) EXPECT_FALSE(world.accept(link)) << "without oslo they are two of five";
  EXPECT_TRUE(world.accept(3));
}

}  // namespace
}  // namespace collab::protocol
