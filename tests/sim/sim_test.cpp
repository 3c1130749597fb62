// Fixed seeds, the simulator's own promises, and proof that its checkers see what they are there to see.
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/swarm.h"

namespace collab::sim {
namespace {

std::string text_of(const SwarmResult& result, const SwarmOptions& options) {
  std::string text = "again: " + replay_command(options);
  for (const std::string& failure : result.failures) text += "\n  " + failure;
  return text;
}

SwarmOptions with(std::uint64_t seed, const std::string& faults) {
  SwarmOptions options;
  options.seed = seed;
  options.faults = *faults_from_text(faults);
  return options;
}

// How many of the seeds 1..count the checkers find at fault.
int caught(Mutation mutation, int count) {
  int found = 0;
  for (int seed = 1; seed <= count; ++seed) {
    SwarmOptions options = with(static_cast<std::uint64_t>(seed), "none");
    options.sites = 3;
    options.rounds = 6;
    options.mutation = mutation;
    found += run_swarm(options).failures.empty() ? 0 : 1;
  }
  return found;
}

SwarmResult expect_sound(const SwarmOptions& options) {
  SwarmResult result = run_swarm(options);
  EXPECT_TRUE(result.failures.empty()) << text_of(result, options);
  return result;
}

TEST(Sim, SameSeedSameRun) {
  for (const std::uint64_t seed : {11, 12, 13}) {
    const SwarmOptions options = with(seed, "all");
    EXPECT_EQ(run_swarm(options).trace, run_swarm(options).trace) << replay_command(options);
  }
  EXPECT_NE(run_swarm(with(11, "all")).trace, run_swarm(with(12, "all")).trace);
}

// Also where sites leave as their budgets are spent: the others hold no round up for them.
TEST(Sim, WithoutFaultsEveryRoundIsCommittedOnce) {
  std::size_t spent = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const SwarmOptions options = with(seed, "none");
    const SwarmResult result = expect_sound(options);
    EXPECT_GE(result.commits, result.rounds);
    spent += result.spent;
  }
  EXPECT_GT(spent, 5U);
}

// From sources of which some are lost, late or send other bytes than they offered. No site waits for them.
TEST(Sim, JoinersBeginWithTheOptimizerStateOfAnother) {
  SimOptimizer::Report all;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SwarmOptions options = with(seed, "join,crash,isolate");
    options.sites = 4;
    options.rounds = 20;
    const SwarmResult result = expect_sound(options);
    all.taken += result.optimizers.taken;
    all.cold += result.optimizers.cold;
    all.wrong += result.optimizers.wrong;
  }
  EXPECT_GT(all.taken, 10U);
  EXPECT_GT(all.cold, 0U);
  EXPECT_GT(all.wrong, 0U);
}

// A call may fail where one is needed that has trained to its end.
TEST(Sim, WithoutFaultsNoCollectivesEnd) {
  SimWorld::Report all;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SwarmOptions options = with(seed, "none");
    options.sites = 3;
    options.hubs = true;
    const SwarmResult result = expect_sound(options);
    all += result.world;
  }
  EXPECT_EQ(all.ended, 0U);
  EXPECT_EQ(all.parted, 0U);
  EXPECT_GT(all.answers, 1000U);
}

class EachFault : public testing::TestWithParam<const char*> {};

TEST_P(EachFault, LeavesOneConsistentSwarm) {
  std::size_t inflicted = 0;
  for (std::uint64_t seed = 100; seed < 140; ++seed) {
    inflicted += expect_sound(with(seed, GetParam())).faults;
  }
  EXPECT_GT(inflicted, 20U);
}

INSTANTIATE_TEST_SUITE_P(Faults, EachFault,
                         testing::Values("cut", "crash", "vanish", "die", "pause", "slow", "isolate", "nan",
                                         "flip-mean", "flip-anchor", "one-way", "split", "coordinator",
                                         "coordinator-dies", "hang", "last-words", "barrier", "store", "disk", "clock",
                                         "join", "all"),
                         [](const auto& fault) {
                           std::string name = fault.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// Such steps are lost where they did not count: it is a rare answer, about 0.3 % of what is trained under all faults.
TEST(Sim, WhetherWhatWasTrainedHasCountedIsSeldomUnknown) {
  std::uint64_t samples = 0;
  std::uint64_t unknown = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SwarmOptions options = with(seed, "all");
    options.sites = 3;
    options.candidates = 3;
    options.rounds = 20;
    const SwarmResult result = expect_sound(options);
    samples += result.samples;
    unknown += result.unknown;
  }
  EXPECT_LT(100 * unknown, samples) << unknown << " of " << samples;
}

SwarmOptions of_four(std::uint64_t seed, const std::string& faults) {
  SwarmOptions options = with(seed, faults);
  options.sites = 4;
  return options;
}

// A member that lies spoils its own part and the rounds it is in, but not what the others agree on, not for long, and
// not their memory. There is one leader, so no lie is about who leads.
TEST(Sim, AMemberThatLiesLeavesOneConsistentSwarm) {
  std::size_t inflicted = 0;
  for (std::uint64_t seed = 500; seed < 540; ++seed) {
    SwarmOptions options = of_four(seed, "lie");
    options.candidates = 1;
    inflicted += expect_sound(options).faults;
  }
  EXPECT_GT(inflicted, 20U);
}

// In every other seed one member lies, and the others are to have rounds all the while.
TEST(Sim, ALyingMemberDelaysEachAttemptByAGraceAtMostAndFillsNoMemory) {
  std::size_t inflicted = 0;
  for (std::uint64_t seed = 600; seed < 660; ++seed) {
    SwarmOptions options = of_four(seed, "lie");
    options.candidates = 1;
    options.rounds = 40;
    options.hubs = false;
    inflicted += expect_sound(options).faults;
  }
  EXPECT_GT(inflicted, 60U);
}

// A site claims what no site has agreed on: the others go on within a grace. If no other site knows a round of the
// model, they go on once an operator has said that the named sites will not come.
TEST(Sim, ASiteThatClaimsRoundsHoldsTheOthersUpForAGrace) {
  std::size_t inflicted = 0;
  for (std::uint64_t seed = 1000; seed < 1060; ++seed) {
    SwarmOptions options = of_four(seed, "claim");
    options.rounds = 20;
    inflicted += expect_sound(options).faults;
  }
  EXPECT_GT(inflicted, 20U);
}

// An operator names the sites that a minority waits for. Some are dead for good. Some are only behind a cut and come
// back. Each side's rounds have their own run name.
TEST(Sim, AForgottenSiteThatLivesComesBack) {
  std::size_t forget_commands = 0;
  for (std::uint64_t seed = 100; seed < 160; ++seed) {
    SwarmOptions options = of_four(seed, "split,isolate,die,crash,forget");
    options.rounds = 20;
    forget_commands += expect_sound(options).forget_commands;
  }
  EXPECT_GT(forget_commands, 5U);
}

// Three of five end a moment before it is looked whether there is one swarm; the other two have to find together.
TEST(Sim, RemainingSitesAreGivenTheTimeToMeet) {
  SwarmOptions options = with(179565812438512879, "all");
  std::erase(options.faults, Fault::kForget);
  options.sites = 5;
  options.rounds = 40;
  expect_sound(options);
}

// A site that the attempt to be settled names had promised the term before: without a newer one its promise was
// missing.
TEST(Sim, ANewerPromiseThatIsNeededBeginsATermAnew) {
  SwarmOptions options = with(310002019, "all");
  options.sites = 2;
  options.rounds = 40;
  expect_sound(options);
}

// A site was told to keep an anchor, saw that it had begun to overwrite it, and offered it again all the same.
TEST(Sim, ADifferingAnchorIsNotKeptAgain) {
  SwarmOptions options = with(410002952, "all");
  options.sites = 2;
  options.rounds = 40;
  expect_sound(options);
}

// Long runs with all faults that failed under earlier rules of the agreement. A seed draws something else once the
// rules change, so a case is held by the unit test that stands beside it.
struct Failed {
  std::uint64_t seed;
  int sites;
  int candidates;
};
class OnceFailed : public testing::TestWithParam<Failed> {};

TEST_P(OnceFailed, ASeedThatOnceFailedIsSoundNow) {
  SwarmOptions options = with(GetParam().seed, "all");
  options.sites = GetParam().sites;
  options.candidates = GetParam().candidates;
  options.rounds = 40;
  expect_sound(options);
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, OnceFailed,
    testing::Values(
        Failed{213224, 3, 3},                        // an old membership came back whole: WayOut.AllOfThem…
        Failed{111481, 3, 3}, Failed{100142, 3, 3},  // settled in another run: WayOut.AttemptsThatMay…
        Failed{7122, 3, 3},                          // a memory of another run: Recovering.WhoRemembers…
        Failed{211012, 3, 3},                        // each visit began the grace anew: WayOut.WhoComesAndGoes…
        Failed{211012, 5, 3}, Failed{102771, 3, 3},  // counted twice: SiteRebase.NorWhereTheRunGets…
        Failed{300709, 5, 3},                        // counted by number: Attempt.ItIsRememberedByNames…
        Failed{601395, 3, 3}, Failed{302113, 5, 3},  // a flipped mean: Lead.WhoHasAnotherMean…
        Failed{30702590, 3, 3},                      // counted twice, after a repair under another name
        Failed{81000759, 3, 3},                      // began from a run that it had left: Beginning.AStateOfTheRun…
        Failed{50701899, 5, 3},                      // sites a generation ahead of those who are too few for rounds
        Failed{83010876, 5, 3},   // together once the missing were forgotten, long after the last fault
        Failed{90012962, 5, 3},   // formed with one that is not ready: SiteRound.AnAttemptThatFindsIt…
        Failed{100001696, 2, 3},  // a judge's: Memories.OfWhichNothingWasDurable…
        Failed{100002807, 3, 3},  // "unknown" of a round that the leader had committed itself
        Failed{104000274, 3, 3},  // counted in a lost round of another run: CommittedRounds.ARunThatBegins…
        Failed{106037800, 5, 3},  // renamed without a slow witness: ElectionClaims.WhatWasSetAsideCountsAgainWhere…
        Failed{106037915, 5, 3}, Failed{106010986, 5, 3},  // a judge's: a voter left after it had promised
        Failed{106008596, 5, 3},                           // a judge's: too few with their records to set a claim aside
        Failed{112013135, 5, 3},                           // a term for two things: ElectionEnd.ATermThatWasBegunIs…
        Failed{112018218, 3, 3},   // a judge's: a hub that is not the leader's holds each round up
        Failed{112021889, 5, 3},   // a call without an end
        Failed{112034192, 2, 3},   // an anchor that was half received
        Failed{116000071, 50, 3},  // a part that came when its slice was another's: Carryover.WhatComesLate…
        Failed{120002753, 2, 3},   // a judge's: who had agreed on far more goes over once the other has caught up
        Failed{120004594, 3, 3},   // a judge's: a buffer that was no number, outside of the round's fragment
        Failed{120008161, 5, 3},   // a committed round passed over: GoneOn.NotInTheFaceOf…
        Failed{120022220, 3, 3},   // gave way to those who had come over: Founder.OfTwoThatHaveAgreed…
        Failed{122045990, 3, 3},   // a judge's: each of a period's five steps waited for a call to time out
        Failed{122049392, 5, 3},   // a judge's: a promise that had waited for its disk, of a site let in since
        Failed{400127, 2, 2}));    // never welcomed: SiteJoinInTwoSeconds.*

// Planted mistakes. A Done said for others goes unseen where all happen to be done by then: so not in every seed.
TEST(Sim, ForgedDoneIsCaught) { EXPECT_GE(caught(Mutation::kForgeDone, 20), 10); }
// Codecs of a few bits may leave out as much as that.
TEST(Sim, ContributionCountedTwiceIsCaught) { EXPECT_GE(caught(Mutation::kCountTwice, 20), 14); }
TEST(Sim, FlippedBitIsCaught) { EXPECT_EQ(caught(Mutation::kFlipBit, 20), 20); }
// Steps are at stake only if a site rebases: with faults.
TEST(Sim, StepsThatARebaseLosesAreCaught) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 90; ++seed) {
    SwarmOptions options = with(seed, "pause,isolate,one-way");
    options.sites = 4;
    options.mutation = Mutation::kLoseSteps;
    found += run_swarm(options).failures.empty() ? 0 : 1;
  }
  EXPECT_GE(found, 10);
}
// What owners keep must not outlive the parameters it was made from.
TEST(Sim, StaleContributionsAreCaught) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {  // it takes a round that was given up in mid-exchange
    SwarmOptions options = with(seed, "all");
    options.mutation = Mutation::kCarryStale;
    if (run_swarm(options).failures.empty()) continue;
    options.mutation = Mutation::kNone;
    const SwarmResult sound = run_swarm(options);
    EXPECT_TRUE(sound.failures.empty()) << text_of(sound, options);
    found += sound.failures.empty() ? 1 : 0;
  }
  EXPECT_GE(found, 4);
}
// What it cannot use it keeps: that has to be seen by how much it knows.
TEST(Sim, ACoordinatorThatKeepsWhatALiarSaysIsCaught) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SwarmOptions options = of_four(seed, "lie");
    options.candidates = 1;
    options.rounds = 40;
    options.mutation = Mutation::kKeepWords;
    const std::vector<std::string> failures = run_swarm(options).failures;
    found += !failures.empty() && failures[0].find("grows beside a lie") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(found, 2);
}
TEST(Sim, WithoutMutationTheSameSeedsAreClean) { EXPECT_EQ(caught(Mutation::kNone, 20), 0); }

TEST(Sim, UnknownFaultIsNamed) {
  const auto faults = faults_from_text("cut,typhoon");
  ASSERT_FALSE(faults.ok());
  EXPECT_NE(faults.status().message().find("typhoon"), std::string::npos);
}

}  // namespace
}  // namespace collab::sim
