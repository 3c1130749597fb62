// Sites that train several models one after the other: which sites wait for which, and which are behind.
#include <gmock/gmock.h>

#include <ctime>

#include "core/protocol/coordinator/generations.h"
#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using ::testing::HasSubstr;

wire::Join join_at(const std::string& name, std::uint32_t generation, std::uint32_t expected = 1) {
  wire::Join join = join_of(name, expected);
  join.generation = generation;
  if (generation > 1) join.model[0].name = "of the model of generation " + std::to_string(generation);
  return join;
}

// Of one that has been a member there, in this life.
wire::Join member_at(const std::string& name, std::uint32_t generation, wire::Offer offer,
                     std::vector<wire::Voter> voters) {
  wire::Join join = join_at(name, generation);
  join.offer = offer;
  join.report.record.anchor = offer;
  join.report.record.voters = std::move(voters);
  join.report.member = true;
  return join;
}

// Both leave generation 1 for generation 2, one after the other.
TEST(CoordinatorGeneration, ASiteThatIsAheadWaitsUntilTheOthersArrive) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, wire::Leave{"on", 2}));
  const auto early = c.hear(3, join_at("paris", 2));
  ASSERT_EQ(sent<wire::Hold>(early).size(), 1U);
  EXPECT_THAT(sent<wire::Hold>(early)[0].second.reason, HasSubstr("waits for tokyo still at generation 1"));
  EXPECT_TRUE(sent<wire::Welcome>(early).empty());

  // tokyo goes on in the generation it trains.
  const auto alone = c.hear(2, CoordinatorHarness::ready(1));
  EXPECT_EQ(sent<wire::StartAttempt>(alone).size(), 1U) << notes(alone);
  static_cast<void>(c.hear(2, CoordinatorHarness::done(sent<wire::StartAttempt>(alone)[0].second)));
  static_cast<void>(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));

  const auto last = c.hear(2, wire::Leave{"on", 2});
  EXPECT_EQ(sent<wire::Welcome>(last).size(), 1U) << notes(last);
  EXPECT_TRUE(sent<wire::InstallAnchor>(last).empty()) << "tokyo is on its way";
  const auto both = c.hear(4, join_at("tokyo", 2));
  const auto installs = sent<wire::InstallAnchor>(both);
  ASSERT_EQ(installs.size(), 2U) << notes(both);
  EXPECT_NE(installs[0].second.run, RunId{7});
  EXPECT_EQ(installs[0].second.round, RoundId{0});
  EXPECT_EQ(installs[0].second.voters.size(), 2U);
}

TEST(CoordinatorGeneration, AHelperThatLeavesForAGenerationIsNotWaitedForThere) {
  CoordinatorHarness c;
  wire::Join helper = join_of("oslo");
  helper.helper = true;
  static_cast<void>(c.hear(1, helper));
  static_cast<void>(c.hear(1, wire::Leave{"on", 7}));
  EXPECT_EQ(sent<wire::Welcome>(c.hear(2, join_of("paris"))).size(), 1U);
}

TEST(CoordinatorGeneration, ABoundedNumberMayWaitForAnother) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  for (std::uint64_t i = 0; i < wire::kMaxSites; ++i)
    static_cast<void>(c.coordinator.step(c.now, Received{LinkId{10 + i}, join_at("guest" + std::to_string(i), 2)}));
  const auto refused = sent<wire::Refuse>(c.hear(3, join_at("lima", 2)));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("[join.too-many-wait]"));
}

// Each look at all whom they name would take seconds if it were made anew, name by name.
TEST(GenerationsTest, TheSitesNamedByThoseThatWaitAreCheckedOnce) {
  std::vector<wire::Voter> voters(wire::kMaxSites);
  for (std::size_t i = 0; i < voters.size(); ++i) voters[i].name = "nobody" + std::to_string(i);
  Generations generations;
  const std::size_t many = 256;
  for (std::uint64_t i = 1; i < many; ++i)
    static_cast<void>(generations.wait(LinkId{i}, member_at("guest" + std::to_string(i), 2, {}, voters), TimePoint{}));
  const std::clock_t begun = std::clock();  // processor time, whatever else runs
  for (int i = 0; i < 100; ++i) EXPECT_EQ(generations.proven(1), 0U);
  EXPECT_LT(std::clock() - begun, 2 * CLOCKS_PER_SEC);

  for (std::size_t i = 0; i < many; ++i) voters[i].name = "guest" + std::to_string(i);
  voters.resize(2 * many - 1);
  static_cast<void>(generations.wait(LinkId{many}, member_at("guest0", 2, {}, voters), TimePoint{}));
  EXPECT_EQ(generations.proven(many), 2U);
  EXPECT_EQ(generations.proven(many + 1), 0U);
  generations.forget(LinkId{1}, TimePoint{});
  EXPECT_EQ(generations.proven(1), 0U) << "less than half of those it names are here now";
  static_cast<void>(generations.wait(LinkId{1}, member_at("guest1", 2, {}, {}), TimePoint{}));
  EXPECT_EQ(generations.take(2).size(), many);
  EXPECT_EQ(generations.proven(0), 0U);
}

TEST(GenerationsTest, RemembersABoundedNumberOfNames) {
  Generations generations;
  for (std::size_t i = 0; i <= wire::kMaxSites; ++i)
    generations.left_for(std::to_string(i), 2, TimePoint{}, TimePoint(seconds(1)));
  EXPECT_EQ(generations.expected(TimePoint{}).size(), wire::kMaxSites);
  generations.left_for("late", 2, TimePoint(seconds(1)), TimePoint(seconds(2)));
  EXPECT_EQ(generations.expected(TimePoint(seconds(1))).size(), 1U) << "the others' time is over";
  for (std::size_t i = 0; i <= wire::kMaxSites; ++i) {
    static_cast<void>(generations.wait(LinkId{i}, join_at(std::to_string(i), 2), TimePoint(seconds(2))));
    generations.forget(LinkId{i}, TimePoint(seconds(2)));
  }
  static_cast<void>(generations.wait(LinkId{1}, join_at("0", 2), TimePoint(seconds(3))));
  static_cast<void>(generations.wait(LinkId{2}, join_at(std::to_string(wire::kMaxSites), 2), TimePoint(seconds(3))));
  EXPECT_EQ(generations.waiting().at(LinkId{1}).since, TimePoint(seconds(2)));
  EXPECT_EQ(generations.waiting().at(LinkId{2}).since, TimePoint(seconds(3))) << "there was no room for its name";
}

TEST(CoordinatorGeneration, ASiteThatLeftForTheNextAndNeverComesIsNotWaitedForLonger) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, wire::Leave{"on", 2}));
  static_cast<void>(c.hear(2, wire::Leave{"on", 2}));
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(3, join_at("paris", 2))).empty());
  EXPECT_EQ(sent<wire::InstallAnchor>(c.pass(seconds(61), {3})).size(), 1U);
}

// A coordinator that knows nothing gives those who may train an earlier one, and return, the grace.
TEST(CoordinatorGeneration, ALaterGenerationBeginsAtAFreshCoordinatorAfterTheGrace) {
  CoordinatorHarness c;
  EXPECT_EQ(sent<wire::Hold>(c.hear(1, join_at("paris", 2))).size(), 1U);
  const auto returned = c.hear(2, member_at("tokyo", 1, {RunId{9}, RoundId{4}, kRight}, voters_of({"tokyo"})));
  EXPECT_EQ(sent<wire::Prepare>(returned).size(), 1U) << notes(returned);
  EXPECT_TRUE(sent<wire::Refuse>(returned).empty()) << "nobody is behind one that waits";
}

TEST(CoordinatorGeneration, ARecordReadFromAFileProvesNothing) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, wire::Leave{"on", 2}));
  wire::Join paris = join_at("paris", 2);
  paris.offer = {RunId{9}, RoundId{4}, kRight};
  paris.report.record.anchor = paris.offer;
  paris.report.record.voters = voters_of({"paris", "tokyo"});  // of the same script's last run
  const auto early = c.hear(3, paris);
  EXPECT_TRUE(sent<wire::Refuse>(early).empty()) << notes(early);
  EXPECT_EQ(sent<wire::Hold>(early).size(), 1U);
}

TEST(CoordinatorGeneration, ALostLinkDoesNotRestartTheWait) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, wire::Leave{"on", 2}));
  static_cast<void>(c.hear(3, join_at("paris", 2)));
  static_cast<void>(c.pass(seconds(200), {2, 3}));
  static_cast<void>(c.close(3));
  static_cast<void>(c.hear(4, join_at("paris", 2)));
  const auto later = c.pass(seconds(101), {2, 4});
  EXPECT_EQ(sent<wire::Refuse>(later).size(), 1U) << "tokyo is behind";
}

TEST(CoordinatorGeneration, ASiteThatIsBehindIsRefusedWithTheReason) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_at("paris", 3)));
  EXPECT_EQ(sent<wire::Welcome>(c.pass(seconds(61))).size(), 1U);
  const auto told = c.hear(2, join_at("tokyo", 1));
  const auto refusals = sent<wire::Refuse>(told);
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_TRUE(refusals[0].second.behind);
  EXPECT_THAT(refusals[0].second.reason, HasSubstr("[join.stale-generation]"));
  EXPECT_EQ(all<CloseLink>(told).size(), 1U);
  EXPECT_EQ(c.coordinator.members(), 1U);
}

TEST(CoordinatorGeneration, HalfOfTheSitesContinueAheadWithoutTheOthers) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, wire::Leave{"on", 2}));
  static_cast<void>(c.hear(3, join_at("paris", 2)));
  const auto later = c.pass(seconds(301), {2, 3});
  const auto behind = sent<wire::Refuse>(later);
  ASSERT_EQ(behind.size(), 1U) << notes(later);
  EXPECT_EQ(behind[0].first, LinkId{2});
  EXPECT_TRUE(behind[0].second.behind);
  EXPECT_EQ(sent<wire::InstallAnchor>(later).size(), 1U);
  // It comes there later, as any joiner.
  const auto back = c.hear(4, join_at("tokyo", 2));
  EXPECT_EQ(sent<wire::Welcome>(back).size(), 1U) << notes(back);
}

// Its leave was lost with their leader: they wait for one that waits for them.
TEST(CoordinatorGeneration, ASiteTheOthersMissIsNotKeptWaitingByThem) {
  CoordinatorHarness c;
  const wire::Offer last{RunId{9}, RoundId{4}, kRight};
  for (std::uint64_t link = 1; link <= 2; ++link) {
    wire::Join join = join_at(link == 1 ? "tokyo" : "lima", 1);
    if (link == 1) join = member_at("tokyo", 1, last, voters_of({"paris", "tokyo"}));
    static_cast<void>(c.hear(link, join));
  }
  EXPECT_EQ(c.coordinator.members(), 0U) << "one of two";
  static_cast<void>(c.hear(3, join_at("paris", 2)));
  const auto later = c.pass(seconds(301), {1, 2, 3});
  const auto behind = sent<wire::Refuse>(later);
  ASSERT_EQ(behind.size(), 2U) << notes(later);
  EXPECT_TRUE(behind[0].second.behind && behind[1].second.behind);
  EXPECT_EQ(c.coordinator.members(), 1U);
}

TEST(CoordinatorGeneration, FewerThanHalfAheadAreRefusedAfterTheWait) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo", "lima"});
  static_cast<void>(c.hear(1, wire::Leave{"on", 2}));
  static_cast<void>(c.hear(4, join_at("paris", 2)));
  const auto later = c.pass(seconds(301), {2, 3, 4});
  const auto refusals = sent<wire::Refuse>(later);
  ASSERT_EQ(refusals.size(), 1U) << notes(later);
  EXPECT_EQ(refusals[0].first, LinkId{4});
  EXPECT_FALSE(refusals[0].second.behind);
  EXPECT_THAT(refusals[0].second.reason, AllOf(HasSubstr("tokyo, lima"), HasSubstr("[join.early-generation]")));
  EXPECT_EQ(c.coordinator.members(), 2U);
}

// Both are cut off at generation 2. One that was started again comes first: it must not found generation 1 over them.
TEST(CoordinatorGeneration, AMemberMayComeBackBeforeAnotherGenerationBegins) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_at("paris", 2, 2)));
  static_cast<void>(c.hear(2, join_at("tokyo", 2, 2)));
  const auto begun = sent<wire::InstallAnchor>(c.pass(seconds(61)));
  ASSERT_EQ(begun.size(), 2U);
  const RunId run = begun[0].second.run;
  for (std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, wire::AnchorInstalled{run, RoundId{0}, kRight}));
  static_cast<void>(c.pass(seconds(120), {1, 2}));  // heartbeats alone
  static_cast<void>(c.close(1));
  static_cast<void>(c.close(2));
  const auto first = c.hear(3, join_at("tokyo", 1));
  EXPECT_EQ(sent<wire::Hold>(first).size(), 1U) << notes(first);
  const auto settled = c.hear(4, member_at("paris", 2, {run, RoundId{0}, kRight}, begun[0].second.voters));
  const auto refusals = sent<wire::Refuse>(settled);
  ASSERT_EQ(refusals.size(), 1U) << notes(settled);
  EXPECT_EQ(refusals[0].first, LinkId{3});
  EXPECT_TRUE(refusals[0].second.behind);
}

TEST(CoordinatorGeneration, RestartedSitesBeginWithTheFirstGenerationAfterTheGrace) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  for (std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, wire::Leave{"on", 2}));
  static_cast<void>(c.hear(3, join_at("paris", 2)));
  static_cast<void>(c.hear(4, join_at("tokyo", 2)));
  static_cast<void>(c.close(3));
  static_cast<void>(c.close(4));
  EXPECT_TRUE(sent<wire::Welcome>(c.hear(5, join_at("paris", 1))).empty());
  EXPECT_EQ(sent<wire::Welcome>(c.pass(seconds(61), {5})).size(), 1U);
}

TEST(CoordinatorGeneration, AfterAnOrderlyEndTheNextRunBeginsAtOnce) {
  CoordinatorHarness c;
  c.gather({"paris"});
  static_cast<void>(c.hear(1, wire::Leave{"on", 2}));
  static_cast<void>(c.hear(2, join_at("paris", 2)));
  static_cast<void>(c.hear(2, wire::Leave{"the end"}));
  EXPECT_EQ(sent<wire::Welcome>(c.hear(3, join_at("paris", 1))).size(), 1U);
}

// A coordinator that knows nothing, a site that was started again, and then a member of a swarm that is further.
TEST(CoordinatorGeneration, AMemberOfALaterGenerationProvesThatTheSwarmIsThere) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_at("tokyo", 1)));
  const auto settled = c.hear(2, member_at("paris", 2, {RunId{9}, RoundId{4}, kRight}, voters_of({"paris"})));
  const auto refusals = sent<wire::Refuse>(settled);
  ASSERT_EQ(refusals.size(), 1U) << notes(settled);
  EXPECT_EQ(refusals[0].first, LinkId{1});
  EXPECT_TRUE(refusals[0].second.behind);
  EXPECT_EQ(sent<wire::Prepare>(settled).size(), 1U);
}

// A record is quickly made up.
TEST(CoordinatorGeneration, OneSitesClaimDoesNotMoveTwoThatTrain) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  const auto held = c.hear(3, member_at("mallory", 1000, {RunId{9}, RoundId{4}, kRight}, voters_of({"mallory"})));
  EXPECT_THAT(sent<wire::Refuse>(held), testing::IsEmpty()) << notes(held);
  EXPECT_EQ(sent<wire::Hold>(held).size(), 1U);
  const auto proved = c.hear(4, member_at("lima", 1000, {RunId{9}, RoundId{4}, kRight}, voters_of({"lima"})));
  EXPECT_EQ(sent<wire::Refuse>(proved).size(), 2U) << notes(proved);
}

TEST(CoordinatorGeneration, AHelperStaysForNoOtherModel) {
  CoordinatorHarness c;
  c.gather({"paris"});
  wire::Join helper = join_of("helper");
  helper.helper = true;
  helper.model.clear();
  static_cast<void>(c.hear(2, helper));
  const auto left = c.hear(1, wire::Leave{"on", 2});
  EXPECT_EQ(sent<wire::Refuse>(left).size(), 1U);
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(3, join_at("paris", 2))).size(), 1U);
}

wire::Join helper_that_holds(std::uint32_t generation) {
  wire::Join helper =
      member_at("helper", generation, {RunId{4000}, RoundId{13}, kRight}, voters_of({"paris", "helper"}));
  helper.helper = true;
  helper.model.clear();
  return helper;
}

// Each generation is a swarm of its own: two that share a helper do not share what it has promised.
TEST(CoordinatorGeneration, AHelpersAnchorOfAnotherModelDoesNotCount) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_at("tokyo", 3)));
  static_cast<void>(c.pass(seconds(70)));
  const auto refusals = sent<wire::Refuse>(c.hear(2, helper_that_holds(1)));
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_EQ(refusals[0].first, LinkId{2});
  EXPECT_TRUE(refusals[0].second.behind);
  EXPECT_THAT(refusals[0].second.reason, AllOf(HasSubstr("generation 3"), HasSubstr("[join.helper-generation]")));
  const auto welcomed = c.hear(3, helper_that_holds(3));
  EXPECT_THAT(sent<wire::Refuse>(welcomed), testing::IsEmpty()) << notes(welcomed);
}

TEST(CoordinatorGeneration, AHelperThatComesFirstTellsWhichModelWasTrained) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, helper_that_holds(2)));
  EXPECT_EQ(sent<wire::Hold>(c.hear(2, join_at("tokyo", 3))).size(), 1U) << "those of generation 2 may come back";
  const auto begun = c.pass(seconds(70));
  EXPECT_THAT(notes(begun), HasSubstr("generation 3"));
  EXPECT_THAT(all<CloseLink>(begun), testing::Contains(testing::Field(&CloseLink::link, LinkId{1})));
}

TEST(SiteGeneration, AHelperReportsTheGenerationOfItsAnchor) {
  SiteHarness s;
  wire::Join join = join_of("helper");
  join.helper = true;
  join.model.clear();
  static_cast<void>(s.step(Begin{join}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{9}, RoundId{4}, {SiteId{0}}, kRight, {}, {}, 3}));
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("cut")}));
  static_cast<void>(s.pass(seconds(1)));
  const auto again = sent<wire::Join>(s.step(CoordinatorConnected{LinkId{2}}));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].second.generation, 3U);
}

TEST(SiteGeneration, AnAnchorOfAnotherModelIsNotTaken) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_at("paris", 2)}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  const auto offered = s.hear(1, wire::InstallAnchor{TermId{1}, RunId{9}, RoundId{4}, {SiteId{0}}, kRight, {}, {}, 1});
  EXPECT_THAT(notes(offered), HasSubstr("generation 1"));
  EXPECT_THAT(all<DialPeer>(offered), testing::IsEmpty());
}

TEST(SiteGeneration, HoldPutsOffTheEndOfTheWait) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_at("paris", 2)}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  for (int second = 0; second < 400; ++second) {
    static_cast<void>(s.hear(1, wire::Hold{"tokyo is still at generation 1"}));
    const auto waited = s.pass(seconds(1));
    ASSERT_TRUE(all<CloseLink>(waited).empty()) << notes(waited);
    ASSERT_TRUE(all<Failed>(waited).empty());
  }
  EXPECT_EQ(all<CloseLink>(s.pass(seconds(70))).size(), 1U) << "a coordinator that has fallen silent is left";
  EXPECT_EQ(all<Failed>(s.pass(seconds(300))).size(), 1U) << "twice COLLAB_JOIN_TIMEOUT is over";
}

// Its candidate has taken it among those it asks, without a word: from then on it answers questions alone.
TEST(SiteGeneration, ASiteHeldNoLongerAsksAndStays) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_at("paris", 2)}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Hold{"tokyo is still at generation 1"}));
  EXPECT_TRUE(sent<wire::Inquire>(s.pass(seconds(1))).empty()) << "it is told where it stands each heartbeat";
  for (int second = 0; second < 60; ++second) {
    const auto waited = s.pass(seconds(1));
    ASSERT_TRUE(all<CloseLink>(waited).empty()) << notes(waited);
    if (!sent<wire::Inquire>(waited).empty()) static_cast<void>(s.hear(1, wire::Leads{false, 2, RunId{3}, {}, 1}));
  }
}

TEST(SiteGeneration, ASiteThatIsBehindEndsWithAnErrorOfItsOwn) {
  SiteHarness s;
  s.become(0, {"paris", "tokyo"});
  const auto failed = all<Failed>(s.hear(1, wire::Refuse{"the swarm trains generation 2", true}));
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].why.code(), StatusCode::kOutdated);
}

TEST(SiteGeneration, ALeavingSiteNamesItsNextGeneration) {
  SiteHarness s;
  s.become(0, {"paris"});
  const auto leave = sent<wire::Leave>(s.step(Depart{"on", 2}));
  ASSERT_EQ(leave.size(), 1U);
  EXPECT_EQ(leave[0].second.next_generation, 2U);
}

}  // namespace
}  // namespace collab::protocol
