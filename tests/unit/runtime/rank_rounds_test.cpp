#include "core/runtime/rank_rounds.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

constexpr TimePoint kNow{};

struct Rounds : RankRounds {
  explicit Rounds(std::uint64_t period, std::uint32_t fragments = 1, bool overlap = false)
      : RankRounds(config(period, overlap), fragments) {
    Decision joined;
    joined.round = RoundId(7);
    begin(joined, kNow);
  }

  static Config config(std::uint64_t period, bool overlap) {
    Config config;
    config.sync_every.steps = period;
    config.overlap = overlap;
    return config;
  }

  void train(int steps) {
    while (steps-- > 0) count_step();
  }
  // A call that ends with the next round, or with whatever `change` makes of that.
  template <typename Change>
  void call(Change change) {
    Decision decided;
    decided.round = RoundId(round().value + 1);
    change(decided);
    end_call(decided, kNow);
  }
  void average() {
    call([](Decision&) {});
  }
  template <typename Change>
  void skip(Change change) {
    call([this, change](Decision& decided) {
      decided.round = round();
      decided.skipped = true;
      change(decided);
    });
  }
  void skip() {
    skip([](Decision&) {});
  }
  void start() {
    call([](Decision& decided) { decided.in_flight = true; });
  }
};

TEST(RankRounds, ARankThatTrainedNothingHasNothingToSettle) {
  Rounds rounds(10);
  EXPECT_EQ(rounds.round(), RoundId(7));
  EXPECT_EQ(rounds.steps_not_common(), 0U);
  EXPECT_EQ(rounds.settles_at(), RoundId(0));
  EXPECT_FALSE(rounds.ends_with_round());
  EXPECT_EQ(rounds.last_turns(true), 0U) << "no step, no last round";
}

TEST(RankRounds, ARoundThatAveragedMakesAllStepsCommon) {
  Rounds rounds(10);
  rounds.train(3);
  EXPECT_EQ(rounds.steps_not_common(), 3U);
  EXPECT_EQ(rounds.settles_at(), RoundId(8));
  EXPECT_TRUE(rounds.ends_with_round());
  EXPECT_EQ(rounds.last_turns(false), 1U);
  rounds.average();
  EXPECT_EQ(rounds.round(), RoundId(8));
  EXPECT_FALSE(rounds.skipped());
  EXPECT_EQ(rounds.steps_not_common(), 0U);
  EXPECT_FALSE(rounds.ends_with_round());
}

TEST(RankRounds, StepsOfASkippedRoundCountInTheNextOne) {
  Rounds rounds(2);
  rounds.train(2);
  rounds.skip();
  EXPECT_TRUE(rounds.skipped());
  EXPECT_FALSE(rounds.schedule().due_by_steps()) << "a period later";
  rounds.train(1);
  EXPECT_EQ(rounds.steps_to_count(), 3U);
  EXPECT_EQ(rounds.steps_not_common(), 3U);
  rounds.average();
  EXPECT_EQ(rounds.steps_to_count(), 0U);
}

TEST(RankRounds, ARoundWithoutANewAnchorCountsAsSkipped) {
  Rounds rounds(2);
  rounds.train(2);
  rounds.call([&rounds](Decision& decided) { decided.round = rounds.round(); });
  EXPECT_TRUE(rounds.skipped());
  EXPECT_EQ(rounds.steps_not_common(), 2U);
}

TEST(RankRounds, ARoundStillDueIsRequestedByTheNextStepAndCountedOnce) {
  Rounds rounds(2);
  rounds.train(2);
  rounds.skip([](Decision& decided) { decided.stays_due = true; });
  rounds.train(1);
  EXPECT_TRUE(rounds.schedule().due_by_steps());
  EXPECT_EQ(rounds.steps_not_common(), 3U);
}

TEST(RankRounds, AMergeCountsTheStepsBeforeTheRoundsTrigger) {
  Rounds rounds(2, 1, true);
  rounds.train(2);
  EXPECT_TRUE(rounds.is_due_behind());
  rounds.start();
  EXPECT_TRUE(rounds.in_flight());
  EXPECT_EQ(rounds.round(), RoundId(7)) << "not yet";
  rounds.train(1);
  EXPECT_EQ(rounds.steps_to_count(), 2U);
  EXPECT_EQ(rounds.steps_not_common(), 3U);
  EXPECT_EQ(rounds.settles_at(), RoundId(9)) << "the one in flight, and one for the step since";
  rounds.average();
  EXPECT_FALSE(rounds.in_flight());
  EXPECT_EQ(rounds.round(), RoundId(8));
  EXPECT_EQ(rounds.steps_not_common(), 1U);
  rounds.train(1);
  EXPECT_TRUE(rounds.is_due_behind()) << "two steps after its begin, not after its merge";
}

TEST(RankRounds, ASkippedMergeCarriesOnlyWhatWasInFlight) {
  Rounds rounds(2, 1, true);
  rounds.train(2);
  rounds.start();
  rounds.train(1);
  rounds.skip();
  EXPECT_EQ(rounds.steps_not_common(), 3U);
  rounds.average();
  EXPECT_EQ(rounds.steps_not_common(), 0U);
}

TEST(RankRounds, ALastRoundIsNeededAfterAMerge) {
  Rounds rounds(2, 1, true);
  rounds.train(2);
  rounds.start();
  rounds.average();
  EXPECT_EQ(rounds.steps_not_common(), 0U);
  EXPECT_TRUE(rounds.ends_with_round());
  EXPECT_EQ(rounds.last_turns(false), 1U);
  rounds.skip();
  EXPECT_EQ(rounds.last_turns(false), 1U) << "that was none";
  rounds.average();
  EXPECT_FALSE(rounds.ends_with_round());
  EXPECT_EQ(rounds.last_turns(true), 1U) << "one that was due came just before: the last is after it";
}

TEST(RankRounds, EveryFragmentHasItsTurnAfterTheLastStep) {
  Rounds rounds(4, 2);
  rounds.train(2);
  rounds.average();
  EXPECT_EQ(rounds.steps_not_common(), 1U) << "the other fragment was averaged before these steps, or never";
  EXPECT_EQ(rounds.last_turns(false), 2U);
  rounds.average();
  EXPECT_EQ(rounds.steps_not_common(), 0U);
  EXPECT_FALSE(rounds.ends_with_round());
  rounds.train(1);
  EXPECT_EQ(rounds.settles_at(), RoundId(11));
  EXPECT_EQ(rounds.last_turns(false), 2U);
}

TEST(RankRounds, ARankThatLeftHadItsLastRoundUnlessItWasSkipped) {
  Rounds rounds(2);
  rounds.train(1);
  rounds.skip([](Decision& decided) { decided.leaving = true; });
  EXPECT_FALSE(rounds.has_left());
  EXPECT_TRUE(rounds.ends_with_round());
  rounds.call([](Decision& decided) { decided.leaving = true; });
  EXPECT_TRUE(rounds.has_left());
  rounds.train(1);
  EXPECT_FALSE(rounds.ends_with_round());
}

TEST(RankRounds, ADueRoundCanBePassedOver) {
  Rounds rounds(2);
  rounds.train(2);
  EXPECT_TRUE(rounds.schedule().would_be_due(kNow));
  rounds.pass(kNow);
  EXPECT_FALSE(rounds.schedule().would_be_due(kNow));
  EXPECT_EQ(rounds.round(), RoundId(7));
}

}  // namespace
}  // namespace collab
