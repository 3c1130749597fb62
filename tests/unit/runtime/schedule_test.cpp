#include "core/runtime/schedule.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/runtime/addresses.h"
#include "core/runtime/step_pace.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(SyncSchedule, BySteps) {
  SyncSchedule schedule({.steps = 3, .time = milliseconds(0)});
  schedule.count_step();
  schedule.count_step();
  EXPECT_FALSE(schedule.due_by_steps());
  schedule.count_step();
  EXPECT_TRUE(schedule.due_by_steps());
  schedule.round_ended(TimePoint{}, RoundId(1), 0);
  EXPECT_FALSE(schedule.due_by_steps());
  EXPECT_EQ(schedule.steps(), 3U);
  EXPECT_EQ(schedule.steps_since_round(), 0U);
}

// How many steps come until the next round is due.
std::uint64_t steps_until_due(SyncSchedule& schedule) {
  std::uint64_t steps = 0;
  while (!schedule.due_by_steps()) {
    schedule.count_step();
    ++steps;
  }
  return steps;
}

TEST(SyncSchedule, TheLeadersPeriodHoldsUntilItChoosesAnother) {
  SyncSchedule schedule({.steps = 3, .time = milliseconds(0), .automatic = true});
  schedule.round_ended(TimePoint{}, RoundId(0), 0);
  EXPECT_EQ(steps_until_due(schedule), 3U) << "it has said nothing yet";
  schedule.round_ended(TimePoint{}, RoundId(1), 7);
  EXPECT_EQ(steps_until_due(schedule), 7U);
  schedule.round_ended(TimePoint{}, RoundId(2), 0);
  EXPECT_EQ(steps_until_due(schedule), 7U) << "as before";
  schedule.round_started(TimePoint{});
  for (int i = 0; i < 4; ++i) schedule.count_step();
  schedule.round_merged(RoundId(3), 5);
  EXPECT_EQ(steps_until_due(schedule), 1U) << "counted from the trigger";
}

TEST(SyncSchedule, APeriodThatWasSetIsNotTheLeadersChoice) {
  SyncSchedule by_steps({.steps = 3, .time = milliseconds(0)});
  by_steps.round_ended(TimePoint{}, RoundId(1), 7);
  EXPECT_EQ(steps_until_due(by_steps), 3U);
  SyncSchedule by_time({.steps = 0, .time = seconds(30)});
  by_time.round_ended(TimePoint{}, RoundId(1), 4);
  by_time.count_step();
  EXPECT_EQ(by_time.step_to_announce(TimePoint{} + seconds(30)), 3U);
}

TEST(SyncSchedule, WarmsUpAtEveryStepThenByDoubling) {
  SyncSchedule schedule({.steps = 20, .time = milliseconds(0)}, 7);
  for (const auto& [round, steps] : {std::pair(0U, 1U), {1, 1}, {2, 1}, {3, 1}, {4, 2}, {5, 5}, {6, 10}, {7, 20}}) {
    schedule.round_ended(TimePoint{}, RoundId(round), 0);
    EXPECT_EQ(steps_until_due(schedule), steps) << "after round " << round;
  }
  SyncSchedule brief({.steps = 20, .time = milliseconds(0)}, 2);
  brief.round_ended(TimePoint{}, RoundId(0), 0);
  EXPECT_EQ(steps_until_due(brief), 5U);
  brief.round_ended(TimePoint{}, RoundId(1), 0);
  EXPECT_EQ(steps_until_due(brief), 10U);
  brief.round_ended(TimePoint{}, RoundId(2), 0);
  EXPECT_EQ(steps_until_due(brief), 20U);
  brief.round_ended(TimePoint{}, RoundId(90), 0);
  EXPECT_EQ(steps_until_due(brief), 20U) << "a run that goes on does not begin anew";
}

TEST(SyncSchedule, ShrinksEvenlyToAnEighthOverTheLastPart) {
  SyncSchedule schedule({.steps = 80, .time = milliseconds(0)}, 0, {.steps = 1'000, .share = 0.2});
  std::vector<std::uint64_t> periods;
  std::uint64_t trained = 0;
  for (std::uint64_t round = 0; trained < 1'000; ++round) {
    schedule.round_ended(TimePoint{}, RoundId(round), 0);
    periods.push_back(steps_until_due(schedule));
    trained += periods.back();
  }
  std::vector<std::uint64_t> expected(11, 80);  // 800 steps, and the round that begins there
  for (const std::uint64_t steps : {48, 28, 17, 10, 10, 10}) expected.push_back(steps);
  EXPECT_EQ(periods, expected);
  schedule.round_ended(TimePoint{}, RoundId(500), 0);
  EXPECT_EQ(steps_until_due(schedule), 10U) << "who trains on is not held up at every step";
}

TEST(SyncSchedule, ShrinksByTheRoundNumberWhateverSitesJoin) {
  const SyncEvery every{.steps = 50, .time = milliseconds(0)};
  const SyncAnneal anneal{.steps = 2'000, .share = 0.5};
  SyncSchedule first(every, 4, anneal);
  for (std::uint64_t round = 0; round < 60; ++round) {
    first.round_ended(TimePoint{}, RoundId(round), 0);
    SyncSchedule joiner(every, 4, anneal);
    joiner.round_ended(TimePoint{}, RoundId(round), 0);
    const std::uint64_t steps = steps_until_due(first);
    EXPECT_EQ(steps_until_due(joiner), steps) << "after round " << round;
    if (round < 4) {
      EXPECT_EQ(steps, std::uint64_t{50} >> (4 - round)) << "warm-up goes first";
    }
  }
  first.round_ended(TimePoint{}, RoundId(2), 0);
  EXPECT_EQ(steps_until_due(first), 12U) << "of another run";
}

TEST(SyncSchedule, WarmsUpToTheLeadersPeriod) {
  SyncSchedule schedule({.steps = 10, .time = milliseconds(0), .automatic = true}, 900);
  schedule.round_ended(TimePoint{}, RoundId(2), 3);
  EXPECT_EQ(steps_until_due(schedule), 1U);
  schedule.round_ended(TimePoint{}, RoundId(899), 5'000);
  EXPECT_EQ(steps_until_due(schedule), 2'500U);
  schedule.round_ended(TimePoint{}, RoundId(900), 5'000);
  EXPECT_EQ(steps_until_due(schedule), 5'000U);
}

TEST(StepPace, LeavesOutTheTimeThatTheScriptStoodStill) {
  StepPace pace;
  const TimePoint start = TimePoint{} + seconds(100);
  pace.begin(start, 0);
  EXPECT_EQ(pace.measured(), wire::Measured{});
  pace.triggered(start + seconds(8), 4);
  EXPECT_EQ(pace.measured().step_us, 2'000'000U);
  EXPECT_EQ(pace.measured().round_us, 0U);
  pace.stood_still(seconds(3), {});
  pace.round_over(start + seconds(11), true);
  EXPECT_EQ(pace.measured().round_us, 3'000'000U);
  pace.triggered(start + seconds(16), 14);
  EXPECT_EQ(pace.measured().step_us, 500'000U);
  EXPECT_EQ(pace.measured().round_us, 3'000'000U) << "of the last round";
  EXPECT_EQ(pace.measured().waited_ppm, 375'000U) << "3 s of 8 s";
  EXPECT_EQ(pace.measured().overlapped_ppm, 0U);
  pace.round_over(start + seconds(17), false);
  EXPECT_EQ(pace.measured().round_us, 0U) << "none came about";
}

TEST(StepPace, CountsOnlyTheMergeOfAnOverlappedRound) {
  StepPace pace;
  pace.begin(TimePoint{}, 0);
  pace.triggered(TimePoint{} + seconds(10), 10);
  pace.stood_still(seconds(1), {});
  pace.stood_still(seconds(1), milliseconds(600));
  pace.round_over(TimePoint{} + seconds(16), true);
  EXPECT_EQ(pace.measured().round_us, 6'000'000U);
  pace.triggered(TimePoint{} + seconds(20), 18);
  EXPECT_EQ(pace.measured().step_us, 1'000'000U);
  EXPECT_EQ(pace.measured().waited_ppm, 200'000U) << "2 s of 10 s";
  EXPECT_EQ(pace.measured().overlapped_ppm, 400'000U) << "the other 4 s of the round";
  EXPECT_EQ(pace.measured().merged_ppm, 60'000U);
  pace.triggered(TimePoint{} + seconds(30), 28);
  EXPECT_EQ(pace.measured().waited_ppm, 0U) << "of the last period";
}

TEST(StepPace, CountsAllRoundsAtOneStep) {
  StepPace pace;
  pace.begin(TimePoint{}, 0);
  pace.triggered(TimePoint{} + seconds(5), 5);
  pace.stood_still(seconds(2), {});
  pace.round_over(TimePoint{} + seconds(7), true);
  pace.triggered(TimePoint{} + seconds(7), 5);
  pace.stood_still(seconds(1), {});
  pace.round_over(TimePoint{} + seconds(8), true);
  EXPECT_EQ(pace.measured().round_us, 1'000'000U);
  pace.triggered(TimePoint{} + seconds(15), 12);
  EXPECT_EQ(pace.measured().step_us, 1'000'000U);
  EXPECT_EQ(pace.measured().waited_ppm, 300'000U) << "3 s of 10 s";
}

TEST(StepPace, ReportsNoLongerTimesThanTheProtocolAllows) {
  StepPace pace;
  pace.begin(TimePoint{}, 0);
  pace.round_over(TimePoint{} + std::chrono::hours(30), true);
  pace.triggered(TimePoint{} + std::chrono::hours(60), 1);
  EXPECT_EQ(pace.measured().step_us, wire::kMaxMeasuredUs);
  EXPECT_EQ(pace.measured().round_us, wire::kMaxMeasuredUs);
}

TEST(SyncSchedule, ByTimeAnnouncesTwoStepsAheadOnce) {
  SyncSchedule schedule({.steps = 0, .time = seconds(30)});
  TimePoint now{};
  schedule.round_ended(now, RoundId(1), 0);
  schedule.count_step();
  EXPECT_EQ(schedule.step_to_announce(now + seconds(29)), 0U);
  schedule.count_step();
  EXPECT_EQ(schedule.step_to_announce(now + seconds(30)), 4U);
  EXPECT_EQ(schedule.step_to_announce(now + seconds(31)), 0U) << "announced already";
  schedule.count_step();
  EXPECT_EQ(schedule.step_to_announce(now + seconds(32)), 0U);
  schedule.count_step();
  EXPECT_EQ(schedule.step_to_announce(now + seconds(33)), 0U) << "this is the announced step";
  EXPECT_TRUE(*schedule.due_by_announcement(4));
  schedule.round_ended(now + seconds(34), RoundId(1), 0);
  schedule.count_step();
  EXPECT_EQ(schedule.step_to_announce(now + seconds(64)), 7U) << "the next one";
}

TEST(SyncSchedule, EveryRankStopsAtTheAnnouncedStep) {
  SyncSchedule follower({.steps = 0, .time = seconds(30)});
  follower.count_step();
  EXPECT_FALSE(*follower.due_by_announcement(0));
  follower.count_step();
  EXPECT_FALSE(*follower.due_by_announcement(3));
  follower.count_step();
  EXPECT_TRUE(*follower.due_by_announcement(3));
  follower.round_ended(TimePoint{}, RoundId(1), 0);
  EXPECT_FALSE(*follower.due_by_announcement(3)) << "that round has been";
}

TEST(SyncSchedule, AMissedAnnouncementIsAnErrorThatNamesBothSteps) {
  SyncSchedule follower({.steps = 0, .time = seconds(30)});
  for (int i = 0; i < 5; ++i) follower.count_step();
  const Result<bool> due = follower.due_by_announcement(4);
  ASSERT_FALSE(due.ok());
  EXPECT_NE(due.status().message().find("announced a round at step 4"), std::string::npos);
  EXPECT_NE(due.status().message().find("at step 5"), std::string::npos);
}

TEST(SyncSchedule, TheNextRoundIsDueByTheTriggerOfTheOverlappedOne) {
  SyncSchedule by_steps({.steps = 4, .time = {}});
  for (int i = 0; i < 4; ++i) by_steps.count_step();
  by_steps.round_started(TimePoint{});
  for (int i = 0; i < 3; ++i) by_steps.count_step();
  EXPECT_FALSE(by_steps.overdue(TimePoint{}));
  by_steps.round_merged(RoundId(1), 0);
  EXPECT_FALSE(by_steps.due_by_steps());
  by_steps.count_step();
  EXPECT_TRUE(by_steps.due_by_steps()) << "four after the trigger, one after the merge";

  SyncSchedule by_time({.steps = 0, .time = seconds(30)});
  by_time.round_started(TimePoint{} + seconds(10));
  by_time.round_merged(RoundId(1), 0);
  EXPECT_FALSE(by_time.overdue(TimePoint{} + seconds(39)));
  EXPECT_EQ(by_time.step_to_announce(TimePoint{} + seconds(39)), 0U);
  EXPECT_TRUE(by_time.overdue(TimePoint{} + seconds(40)));
  by_time.count_step();
  EXPECT_EQ(by_time.step_to_announce(TimePoint{} + seconds(40)), 3U);
}

TEST(SyncSchedule, AnElementsPeriodIsThatOfItsFragment) {
  EXPECT_EQ(period_of_elements({.steps = 30, .time = {}}, 1), 30U);
  EXPECT_EQ(period_of_elements({.steps = 30, .time = {}}, 4), 28U) << "a round every seven";
  EXPECT_EQ(period_of_elements({.steps = 2, .time = {}}, 4), 4U);
  EXPECT_EQ(period_of_elements({.steps = 0, .time = seconds(40)}, 4), 0U);
  EXPECT_EQ(period_of_elements({.steps = 32, .time = {}, .automatic = true}, 4), 128U) << "a round every 32";
}

TEST(SyncSchedule, ARoundIsNotOverdueDuringWarmUpOrBeforeTheLeadersChoice) {
  SyncSchedule warm({.steps = 8, .time = {}}, 3);
  warm.round_ended(TimePoint{}, RoundId(0), 0);
  warm.count_step();
  warm.round_started(TimePoint{});
  for (int i = 0; i < 7; ++i) warm.count_step();
  EXPECT_TRUE(warm.due_by_steps()) << "the second step of the run was to be one";
  EXPECT_FALSE(warm.overdue(TimePoint{}));
  warm.count_step();
  EXPECT_TRUE(warm.overdue(TimePoint{}));

  SyncSchedule chosen({.steps = 4, .time = {}, .automatic = true});
  chosen.round_started(TimePoint{});
  for (int i = 0; i < 50; ++i) chosen.count_step();
  EXPECT_FALSE(chosen.overdue(TimePoint{})) << "the leader has no figures yet";
  chosen.round_merged(RoundId(1), 60);
  chosen.round_started(TimePoint{});
  for (int i = 0; i < 60; ++i) chosen.count_step();
  EXPECT_TRUE(chosen.overdue(TimePoint{}));
}

TEST(SyncSchedule, ARoundThatTakesLongerThanThePeriodIsFollowedAtOnce) {
  SyncSchedule schedule({.steps = 4, .time = {}});
  for (int i = 0; i < 4; ++i) schedule.count_step();
  schedule.round_started(TimePoint{});
  for (int i = 0; i < 6; ++i) schedule.count_step();
  EXPECT_TRUE(schedule.overdue(TimePoint{}));
  schedule.round_merged(RoundId(1), 0);
  schedule.count_step();
  EXPECT_TRUE(schedule.due_by_steps());
  schedule.round_started(TimePoint{});
  EXPECT_FALSE(schedule.due_by_steps());
}

TEST(SyncSchedule, TheMergeIsAnnouncedLikeARound) {
  SyncSchedule rank({.steps = 4, .time = {}});
  for (int i = 0; i < 4; ++i) rank.count_step();
  rank.round_started(TimePoint{});
  rank.count_step();
  const std::uint64_t merge = rank.step_to_announce_early();
  EXPECT_EQ(merge, 7U);
  rank.count_step();
  EXPECT_FALSE(*rank.due_by_announcement(merge));
  rank.count_step();
  EXPECT_TRUE(*rank.due_by_announcement(merge));
  rank.round_merged(RoundId(1), 0);
  rank.count_step();
  EXPECT_FALSE(*rank.due_by_announcement(merge)) << "it is merged";
  EXPECT_TRUE(rank.due_by_steps());
}

TEST(Addresses, AWildcardHostIsReplacedByTheAdvertisedOne) {
  EXPECT_EQ(dialable("0.0.0.0:4000", "10.0.0.7"), "10.0.0.7:4000");
  EXPECT_EQ(dialable("[::]:4000", "2001:db8::1"), "[2001:db8::1]:4000");
  EXPECT_EQ(dialable("0.0.0.0:4000", ""), "127.0.0.1:4000");
  EXPECT_EQ(dialable("127.0.0.1:4000", "10.0.0.7"), "127.0.0.1:4000");
  EXPECT_EQ(dialable("gloo:3", "10.0.0.7"), "gloo:3");
}

TEST(SyncSchedule, ARoundWantedEarlyIsAnnouncedTwoStepsAhead) {
  SyncSchedule leader(SyncEvery{.steps = 100, .time = {}});
  for (int i = 0; i < 5; ++i) leader.count_step();
  EXPECT_EQ(leader.step_to_announce_early(), 7U);
  EXPECT_EQ(leader.step_to_announce_early(), 0U) << "announced already";
  leader.count_step();
  EXPECT_FALSE(*leader.due_by_announcement(7));
  EXPECT_EQ(leader.step_to_announce_early(), 0U);
  leader.count_step();
  EXPECT_TRUE(*leader.due_by_announcement(7));
}

TEST(SyncSchedule, ARoundVoidsWhatWasAnnouncedBeforeIt) {
  SyncSchedule rank(SyncEvery{.steps = 6, .time = {}});
  for (int i = 0; i < 5; ++i) rank.count_step();
  const std::uint64_t announced = rank.step_to_announce_early();
  EXPECT_EQ(announced, 7U);
  rank.count_step();
  EXPECT_TRUE(rank.due_by_steps());
  rank.round_ended(TimePoint{}, RoundId(1), 0);
  rank.count_step();
  EXPECT_FALSE(*rank.due_by_announcement(announced)) << "a second round after one step";
  EXPECT_EQ(rank.step_to_announce_early(), 9U) << "another can be announced at once";
  rank.count_step();
  EXPECT_FALSE(*rank.due_by_announcement(announced)) << "nor is it a step that was missed";
}

}  // namespace
}  // namespace collab
