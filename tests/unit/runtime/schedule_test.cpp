#include "core/runtime/schedule.h"

#include <gtest/gtest.h>

#include "core/runtime/addresses.h"

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
  schedule.round_ended(TimePoint{}, 1);
  EXPECT_FALSE(schedule.due_by_steps());
  EXPECT_EQ(schedule.steps(), 3U);
  EXPECT_EQ(schedule.steps_since_round(), 0U);
}

TEST(SyncSchedule, AfterSoManyIntervals) {
  SyncSchedule by_steps({.steps = 3, .time = milliseconds(0)});
  by_steps.round_ended(TimePoint{}, 2);
  for (int i = 0; i < 5; ++i) by_steps.count_step();
  EXPECT_FALSE(by_steps.due_by_steps());
  by_steps.count_step();
  EXPECT_TRUE(by_steps.due_by_steps());
  SyncSchedule by_time({.steps = 0, .time = seconds(30)});
  by_time.round_ended(TimePoint{}, 4);
  by_time.count_step();
  EXPECT_EQ(by_time.step_to_announce(TimePoint{} + seconds(119)), 0U);
  EXPECT_EQ(by_time.step_to_announce(TimePoint{} + seconds(120)), 3U);
}

TEST(SyncSchedule, AnIntervalEndsWithinALongerPeriod) {
  SyncSchedule by_steps({.steps = 10, .time = milliseconds(0)});
  by_steps.round_ended(TimePoint{}, 4);
  for (int i = 0; i < 9; ++i) by_steps.count_step();
  EXPECT_FALSE(by_steps.ends_interval());
  by_steps.count_step();
  EXPECT_TRUE(by_steps.ends_interval());
  EXPECT_FALSE(by_steps.due_by_steps());
  SyncSchedule by_time({.steps = 0, .time = seconds(30)});
  EXPECT_FALSE(by_time.ends_interval());
}

TEST(SyncSchedule, ByTimeAnnouncesTwoStepsAheadOnce) {
  SyncSchedule schedule({.steps = 0, .time = seconds(30)});
  TimePoint now{};
  schedule.round_ended(now, 1);
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
  schedule.round_ended(now + seconds(34), 1);
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
  follower.round_ended(TimePoint{}, 1);
  EXPECT_FALSE(*follower.due_by_announcement(3)) << "that round has been";
}

TEST(SyncSchedule, AMissedAnnouncementIsAnErrorInWords) {
  SyncSchedule follower({.steps = 0, .time = seconds(30)});
  for (int i = 0; i < 5; ++i) follower.count_step();
  const Result<bool> due = follower.due_by_announcement(4);
  ASSERT_FALSE(due.ok());
  EXPECT_NE(due.status().message().find("announced a round at step 4"), std::string::npos);
  EXPECT_NE(due.status().message().find("at step 5"), std::string::npos);
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
  rank.round_ended(TimePoint{}, 1);
  rank.count_step();
  EXPECT_FALSE(*rank.due_by_announcement(announced)) << "a second round after one step";
  EXPECT_EQ(rank.step_to_announce_early(), 9U) << "another can be announced at once";
  rank.count_step();
  EXPECT_FALSE(*rank.due_by_announcement(announced)) << "nor is it a step that was missed";
}

}  // namespace
}  // namespace collab
