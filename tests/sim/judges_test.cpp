// The simulator's judges see what they are there to see, on runs made by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/hub_judge.h"
#include "tests/sim/verdict.h"

namespace collab::sim {
namespace {

// ---- what is agreed on stands for ever -------------------------------------------------------------

wire::Commit commit(std::uint64_t run, std::uint64_t round, std::uint32_t attempt) {
  wire::Commit commit;
  commit.run = RunId{run};
  commit.round = RoundId{round};
  commit.attempt = AttemptId{attempt};
  return commit;
}

TEST(Checkers, ARoundOfARunIsCommittedOnce) {
  Checkers checkers;
  checkers.committed(commit(1000, 5, 1));
  checkers.committed(commit(1000, 5, 1));  // told again
  checkers.committed(commit(2000, 5, 2));  // another run
  EXPECT_TRUE(checkers.failures().empty());
  EXPECT_EQ(checkers.commits(), 2U);
  checkers.committed(commit(1000, 5, 2));
  ASSERT_EQ(checkers.failures().size(), 1U);
  EXPECT_NE(checkers.failures()[0].find("round 5 of run 1000 was committed twice"), std::string::npos);
}

TEST(Checkers, ARoundOfARunHasOneAnchor) {
  Checkers checkers;
  checkers.holds("a.1", {RunId{1000}, RoundId{5}, {1, 1}});
  checkers.holds("b.1", {RunId{1000}, RoundId{5}, {1, 1}});
  checkers.holds("b.1", {RunId{2000}, RoundId{5}, {2, 2}});
  EXPECT_TRUE(checkers.failures().empty());
  checkers.holds("c.1", {RunId{1000}, RoundId{5}, {3, 3}});
  EXPECT_EQ(checkers.failures().size(), 1U);
}

TEST(Checkers, AllHoldersOfAnAnchorUnderOneLeaderTrainEquallyLong) {
  Checkers checkers;
  const Checkers::Told round_5{TermId{1}, RunId{1000}, RoundId{5}};
  checkers.follows("a.1", round_5, 3);
  checkers.follows("b.1", round_5, 3);
  checkers.follows("b.1", {TermId{1}, RunId{1000}, RoundId{6}}, 4);
  checkers.follows("c.1", {TermId{2}, RunId{1000}, RoundId{5}}, 2);
  EXPECT_TRUE(checkers.failures().empty());
  checkers.follows("c.1", round_5, 2);
  ASSERT_EQ(checkers.failures().size(), 1U);
  EXPECT_NE(checkers.failures()[0].find("c.1 trains 2 steps after round 5, a.1 trains 3"), std::string::npos);
}

TEST(Checkers, PerhapsCountedWorkIsNotMissedAndTheRestIs) {
  Checkers checkers;
  wire::StartAttempt start;
  start.run = RunId{1000};
  start.round = RoundId{5};
  start.attempt = AttemptId{1};
  start.participants = {{SiteId{0}, "a", 2}};
  checkers.contributes(start, SiteId{0}, {"a.1", 2, 0, 10, 12, {}, {}, {}});
  wire::Commit counted = commit(1000, 5, 1);
  counted.contributors = {SiteId{0}};
  checkers.committed(counted);
  checkers.perhaps_counted("a.1", 0, 0, 10);
  checkers.expect_all_counted("a.1", 12, 1);
  EXPECT_TRUE(checkers.failures().empty());
  checkers.expect_all_counted("a.1", 13, 1);
  ASSERT_EQ(checkers.failures().size(), 1U);
  EXPECT_NE(checkers.failures()[0].find("the first one not counted in fragment 0 is 12"), std::string::npos);
}

// ---- what processes find when they start again -----------------------------------------------------

TEST(Store, PartsAreLostTornAndOlderEachOnItsOwn) {
  Part<int> part;
  EXPECT_EQ(part.read(), nullptr);
  part.age();
  for (const int value : {1, 2, 3}) part.write(value);
  part.age();
  ASSERT_NE(part.read(), nullptr);
  EXPECT_EQ(*part.read(), 2);
  part.tear();
  EXPECT_EQ(part.read(), nullptr);
  part.write(4);
  EXPECT_EQ(*part.read(), 4);
  part.lose();
  EXPECT_EQ(part.read(), nullptr);
}

// ---- one swarm, and rounds, once nothing happens any more ------------------------------------------

class VerdictTest : public ::testing::Test {
 protected:
  explicit VerdictTest(Setting setting = three_sites())
      : population_{std::move(setting), network_, checkers_, [](const std::string&, const std::string&) {}, prng_} {}
  static Setting three_sites() {
    Setting setting;
    setting.rounds = 1'000;
    setting.elements = 1'000;
    setting.data = SimData::small();
    return setting;
  }

  void SetUp() override {
    population_.begin(0);
    look();
  }
  void look() {
    verdict_.look();
    network_.at(network_.now() + seconds(1), [this] { look(); });
  }
  void run_until(double s) {
    while (network_.now() < TimePoint(seconds(s)) && checkers_.failures().empty() && network_.run_one()) {
    }
  }
  bool failed_with(const std::string& words) {
    const std::vector<std::string> failures = checkers_.failures();
    return std::ranges::any_of(failures, [&](const std::string& f) { return f.find(words) != std::string::npos; });
  }

  Prng prng_{7};
  Network network_{{}, 7};
  Checkers checkers_;
  Population population_;
  Verdict verdict_{population_, network_, checkers_, true};
};

TEST_F(VerdictTest, ASwarmThatIsWellIsLeftInPeace) {
  run_until(300);
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
  EXPECT_GT(checkers_.commits(), 100U);
}

TEST_F(VerdictTest, ASwarmWithoutRoundsFails) {
  run_until(10);
  population_.kill_candidate(0, Death::kProcess, true);  // and none takes its place
  run_until(200);
  EXPECT_TRUE(failed_with("no rounds"));
}

TEST_F(VerdictTest, ASiteThatIsNeverLetInIsReported) {
  run_until(10);
  population_.join_late();
  for (int second = 10; second < 300; ++second) {  // and none of those that take its place
    if (const SimSite* site = population_.live("late0")) network_.isolate(site->node(), TimePoint(seconds(1000)));
    run_until(second);
  }
  verdict_.judge();
  EXPECT_TRUE(failed_with("late0."));
}

TEST_F(VerdictTest, SitesWithoutAMajorityAreNotJudged) {
  run_until(10);
  for (const std::string name : {"site0", "site1"}) {
    population_.crash(*population_.live(name), Death::kProcess, true);
  }
  EXPECT_FALSE(population_.may_lose_one());
  run_until(200);
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
  EXPECT_TRUE(verdict_.finished());
}

// Three of five that come back to several candidates at different times find each other.
class VerdictOfFive : public VerdictTest, public testing::WithParamInterface<std::uint64_t> {
 protected:
  VerdictOfFive() : VerdictTest(five_sites()) {}
  static Setting five_sites() {
    Setting setting = three_sites();
    setting.seed = GetParam();
    setting.sites = 5;
    setting.candidates = 3;
    return setting;
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, VerdictOfFive, testing::Range<std::uint64_t>(1, 9));

TEST_P(VerdictOfFive, RoundsContinueWithTwoSitesDeadAndTwoRestarted) {
  run_until(10);
  for (const std::string name : {"site3", "site4"}) population_.crash(*population_.live(name), Death::kHost, true);
  run_until(11);
  for (const std::string name : {"site0", "site1"}) population_.crash(*population_.live(name), Death::kProcess);
  run_until(120);
  const std::size_t before = checkers_.commits();
  run_until(180);
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
  EXPECT_GT(checkers_.commits(), before + 20U);
}

// Three of four sites, and one that comes with more rounds of a run whose other member is dead.
class VerdictBesideAnother : public VerdictTest {
 protected:
  explicit VerdictBesideAnother(std::uint32_t sites = 4) : VerdictTest(so_many(sites)) {}
  static Setting so_many(std::uint32_t sites) {
    Setting setting = three_sites();
    setting.sites = sites;
    return setting;
  }
  void let_one_of_another_run_come() {
    population_.crash(*population_.live("site3"), Death::kHost, true);
    population_.join_late();
    SimSite& late = *population_.live("late0");
    population_.crash(late, Death::kHost);
    claim_another_run(late);
  }
  // It had agreed on more, with one that is dead.
  void claim_another_run(SimSite& site) {
    wire::Record record;
    record.acceptor = AcceptorId{77};
    record.promised = TermId{1};
    record.generation = 1;
    record.anchor = {RunId{UINT64_MAX / 2}, RoundId{5'000}, {1, 1}};
    record.voters = {{SiteId{0}, site.options().name, AcceptorId{77}}, {SiteId{1}, "site3", AcceptorId{78}}};
    Store& store = population_.store_of(site);
    store.lose();
    store.record.write(record);
  }
};

TEST_F(VerdictBesideAnother, AStuckSiteOfAnotherRunDoesNotExcuseASwarmWithoutRounds) {
  run_until(10);
  let_one_of_another_run_come();
  population_.kill_candidate(0, Death::kProcess, true);  // and none takes its place
  run_until(400);                                        // the one of another run gives up and begins again for 200 s
  EXPECT_FALSE(checkers_.failures().empty());
}

TEST_F(VerdictBesideAnother, ASwarmContinuesBesideASiteOfAnotherRun) {
  run_until(10);
  let_one_of_another_run_come();
  run_until(300);
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
  EXPECT_GT(checkers_.commits(), 100U);
}

TEST_F(VerdictBesideAnother, SitesWithoutAMajorityInEitherRunWait) {
  run_until(10);
  let_one_of_another_run_come();
  for (const std::string name : {"site1", "site2"}) {
    population_.crash(*population_.live(name), Death::kHost, true);
  }
  run_until(300);
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
}

// It is one of theirs, by name: but what it says counts for nothing, so that it makes two of five no majority.
class VerdictBesideOneOfThem : public VerdictBesideAnother {
 protected:
  VerdictBesideOneOfThem() : VerdictBesideAnother(5) {}
};
TEST_F(VerdictBesideOneOfThem, ASiteSetAsideIsNotInTheMajority) {
  run_until(10);
  for (const std::string name : {"site3", "site4"}) population_.crash(*population_.live(name), Death::kHost, true);
  SimSite& other = *population_.live("site2");
  population_.crash(other, Death::kHost);
  claim_another_run(other);
  population_.kill_candidate(0, Death::kProcess);  // a leader now would take it in
  run_until(300);
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
}

// One of four lies, and nothing else befalls anybody.
class VerdictOfALie : public VerdictTest {
 protected:
  VerdictOfALie() : VerdictTest(with_a_liar()) {}
  static Setting with_a_liar() {
    Setting setting = three_sites();
    setting.sites = 4;
    setting.liars = setting.one_liar = true;
    return setting;
  }
  void SetUp() override {
    VerdictTest::SetUp();
    run_until(10);
    population_.lie(*population_.live("site3"), 1, TimePoint(seconds(300)));
  }
};

TEST_F(VerdictOfALie, ASwarmHasRoundsDespiteALyingSite) {
  run_until(200);
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
  EXPECT_GT(checkers_.commits(), 50U);
}

TEST_F(VerdictOfALie, ALieThatHoldsAnAttemptUpForAGraceIsReported) {
  population_.kill_candidate(0, Death::kProcess, true);  // and nobody takes its place
  run_until(45);
  EXPECT_TRUE(failed_with("a lie holds an attempt up"));
}

TEST_F(VerdictOfALie, AttemptsThatNeverLeadToARoundAreReported) {
  population_.kill_candidate(0, Death::kProcess, true);
  for (int second = 10; second < 150; ++second) {
    checkers_.formed({});
    run_until(second);
  }
  EXPECT_TRUE(failed_with("a lie holds rounds up"));
}

TEST_F(VerdictOfALie, TooFewOthersAreNotJudged) {
  for (const std::string name : {"site1", "site2"}) {
    population_.crash(*population_.live(name), Death::kProcess, true);
  }
  run_until(45);
  EXPECT_FALSE(failed_with("a lie holds"));
}

TEST_F(VerdictOfALie, APileOfMessagesFromAnHonestSiteIsReported) {
  const NodeId node = population_.live("site1")->node();
  const LinkId link = network_.connect(node, population_.live("site2")->options().address, seconds(5));
  run_until(11);
  network_.isolate(node, TimePoint(seconds(100)));
  TransportMessage large{.lane = Lane::kControl, .head = std::vector<std::byte>(1U << 20), .payload = nullptr};
  network_.send(node, link, std::move(large), 0);
  run_until(13);
  EXPECT_TRUE(failed_with("bytes of control messages on their way beside a lie"));
}

// Two of these three may send less than the twelve rounds take.
class VerdictOfBudgets : public VerdictTest {
 protected:
  VerdictOfBudgets() : VerdictTest(with_budgets()) {}
  static Setting with_budgets() {
    Setting setting = three_sites();
    setting.seed = kSeed;
    setting.rounds = 12;
    setting.budgets = true;
    return setting;
  }
  static constexpr std::uint64_t kSeed = 2;
  void run_until_two_have_left() {
    for (int tenth = 0; tenth < 600 && spent() < 2; ++tenth) run_until(0.1 * tenth);
    ASSERT_EQ(spent(), 2);
    run_until(static_cast<double>(network_.now().time_since_epoch().count()) / 1e6 + 0.2);  // the other is told
  }
  int spent() {
    return static_cast<int>(
        std::ranges::count_if(population_.processes(), [](const auto& site) { return site->report().spent; }));
  }
};

TEST_F(VerdictOfBudgets, TheLastOfThreeTrainsToTheEnd) {
  run_until_two_have_left();
  run_until(60);
  verdict_.judge();
  EXPECT_TRUE(checkers_.failures().empty()) << checkers_.failures().front();
  EXPECT_TRUE(verdict_.finished());
  EXPECT_EQ(checkers_.commits(), 12U);
}

TEST_F(VerdictOfBudgets, TheLastSiteHasToHaveRoundsThoughTheOthersHaveLeft) {
  run_until_two_have_left();
  population_.kill_candidate(0, Death::kProcess, true);  // and none takes its place
  run_until(200);
  EXPECT_TRUE(failed_with("no rounds"));
}

// ---- collectives of a world ------------------------------------------------------------------------

struct JudgedWorld {
  explicit JudgedWorld(bool forgets = false)
      : judge(script, {"a", "b", "c"}, forgets, [this](const std::string& what) { broken.push_back(what); }) {}
  void given(std::uint32_t rank, std::uint64_t step, const std::string& error) {
    judge.given(rank, {step, unavailable(error), {}, {}});
  }

  HubScript script{{{RankId(0), RankId(1), RankId(2)}}};
  std::vector<std::string> broken;
  HubJudge judge;
};

TEST(HubJudge, AStepHasOneResult) {
  JudgedWorld world;
  world.given(0, 1, "late");
  world.given(1, 1, "late");
  world.given(1, 2, "gone");
  EXPECT_TRUE(world.broken.empty());
  world.given(2, 1, "gone");
  EXPECT_EQ(world.broken.size(), 1U);
}

TEST(HubJudge, NoStepIsLostWhereThereAreSeveralHubs) {
  JudgedWorld only(true);
  only.given(0, 1, "it fell behind [hub.too-late]");
  EXPECT_TRUE(only.broken.empty());
  JudgedWorld several;
  several.given(0, 1, "it fell behind [hub.too-late]");
  EXPECT_EQ(several.broken.size(), 1U);
}

TEST(HubJudge, MembershipsAreOneChainAndLostRanksStayLost) {
  JudgedWorld world;
  world.judge.told(0, wire::ChosenEpoch{{1, {RankId(2)}}});
  world.judge.told(1, wire::Entered{1, 1, {1, 1}, {1, {RankId(2)}}});
  EXPECT_TRUE(world.broken.empty());
  world.judge.told(2, wire::Entered{1, 1, {1, 1}, {1, {RankId(2)}}});
  EXPECT_EQ(world.broken.size(), 1U) << "it is let in";
  world.judge.told(2, wire::ChosenEpoch{{1, {RankId(1)}}});
  EXPECT_EQ(world.broken.size(), 2U) << "there are two of them";
  world.judge.told(0, wire::ChosenEpoch{{2, {RankId(0)}}});
  EXPECT_EQ(world.broken.size(), 3U) << "it brings one back";
}

}  // namespace
}  // namespace collab::sim
