// What a leader can say of committed rounds: which sites were counted, and which site missed a commit.
#include "core/protocol/agreement/committed_rounds.h"

#include <gtest/gtest.h>

#include "core/protocol/agreement/attempt.h"

namespace collab::protocol {
namespace {

using wire::Counted;
using Answer = CommittedRounds::Answer;

wire::Past past(std::uint64_t run, std::uint64_t round, std::vector<std::string> contributors) {
  return {RunId{run}, RoundId{round}, AttemptId{1}, std::move(contributors), {}};
}
wire::Offer anchor(std::uint64_t run, std::uint64_t round) { return {RunId{run}, RoundId{round}, {}}; }

TEST(CommittedRounds, TellWhetherASiteWasCounted) {
  CommittedRounds rounds;
  rounds.add(past(7, 3, {"paris", "rome"}));
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)), (Answer{Counted::kYes, AttemptId{1}}));
  EXPECT_EQ(rounds.counted("oslo", anchor(7, 2)), Answer{Counted::kNo});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 1)), Answer{Counted::kUnknown}) << "of round 2 nothing is known";
  EXPECT_EQ(rounds.counted("paris", anchor(8, 2)), Answer{Counted::kUnknown}) << "another run";
}

TEST(CommittedRounds, AnAbandonedAttemptCountedNobody) {
  CommittedRounds rounds;
  rounds.give_up_after(anchor(7, 2));
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)), Answer{Counted::kNo});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 3)), Answer{Counted::kUnknown});
}

TEST(CommittedRounds, ARunThatBeginsFromAnEarlierRoundForgetsTheLaterOnes) {
  CommittedRounds rounds;
  for (std::uint64_t round = 1; round <= 5; ++round) rounds.add(past(7, round, {"paris"}));
  rounds.begin_run(anchor(7, 3), RunId{8});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)), (Answer{Counted::kYes, AttemptId{1}}));
  EXPECT_EQ(rounds.counted("paris", anchor(7, 3)), Answer{Counted::kUnknown});
}

// Round 4 of run 9 was committed and lost: what goes on from run 7's anchor of the same round has nothing of it.
TEST(CommittedRounds, ARunThatBeginsFromAnothersAnchorKnowsNothingOfTheLostOne) {
  CommittedRounds rounds;
  for (std::uint64_t round = 1; round <= 3; ++round) rounds.add(past(7, round, {"paris"}));
  rounds.begin_run(anchor(7, 3), RunId{9});
  rounds.add(past(9, 4, {"paris"}));
  rounds.begin_run(anchor(7, 4), RunId{10});
  EXPECT_EQ(rounds.counted("paris", anchor(9, 3)), Answer{Counted::kUnknown});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)), (Answer{Counted::kYes, AttemptId{1}}));
  rounds.begin_run(anchor(6, 4), RunId{11});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)), Answer{Counted::kUnknown}) << "of run 6 none is known";
}

TEST(CommittedRounds, ARunThatIsRenamedTwiceKnowsWhatCameBefore) {
  CommittedRounds rounds;
  for (std::uint64_t round = 1; round <= 3; ++round) rounds.add(past(7, round, {"paris"}));
  rounds.begin_run(anchor(7, 3), RunId{8});
  rounds.begin_run(anchor(8, 3), RunId{9});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)), (Answer{Counted::kYes, AttemptId{1}}));
}

TEST(CommittedRounds, ForgetsThoseOfOtherRunsAndTheOldestFirst) {
  CommittedRounds rounds;
  rounds.add(past(6, 900, {"paris"}));
  for (std::uint64_t round = 1; round <= 65; ++round) rounds.add(past(7, round, {"paris"}));
  EXPECT_EQ(rounds.counted("paris", anchor(6, 899)), Answer{Counted::kUnknown});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 0)), Answer{Counted::kUnknown});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 1)), (Answer{Counted::kYes, AttemptId{1}}));
  EXPECT_EQ(rounds.counted("paris", anchor(7, 64)), (Answer{Counted::kYes, AttemptId{1}}));
}

TEST(CommittedRounds, KnowsTheSitesThatMissedTheirCommit) {
  wire::StartAttempt start;
  start.run = RunId{7};
  start.round = RoundId{3};
  start.attempt = AttemptId{1};
  const std::vector<Digest> slices{{1, 2}, {3, 4}};
  wire::Report report;
  report.holds_mean = true;
  report.record.proposals = {{.start = start, .accepted = true, .slices = slices}};
  CommittedRounds rounds;
  EXPECT_EQ(rounds.missed_by(anchor(7, 2), report), nullptr) << "it was not committed";
  rounds.add(past_of(start, slices));
  const wire::Proposal* missed = rounds.missed_by(anchor(7, 2), report);
  ASSERT_NE(missed, nullptr);
  EXPECT_TRUE(rounds.has_right_mean(*missed));
  EXPECT_EQ(rounds.missed_by(anchor(7, 3), report), nullptr) << "it has applied it";
  wire::Report without = report;
  without.holds_mean = false;
  EXPECT_EQ(rounds.missed_by(anchor(7, 2), without), nullptr);
  rounds.add(past_of(start, {{9, 9}}));
  EXPECT_FALSE(rounds.has_right_mean(report.record.proposals[0]));
}

// The leader that had given its predecessor's attempt up committed another; then all left, and another run began.
TEST(CommittedRounds, ARoundCommittedAfterItWasGivenUpIsUnknownToALaterRun) {
  wire::StartAttempt start;
  start.run = RunId{7};
  start.round = RoundId{3};
  CommittedRounds rounds;
  rounds.give_up_after(anchor(7, 2));
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)).counted, wire::Counted::kNo);
  rounds.add(past_of(start, {}));
  rounds.begin_run(anchor(7, 0), RunId{8});
  EXPECT_EQ(rounds.counted("paris", anchor(7, 2)).counted, wire::Counted::kUnknown);
}

}  // namespace
}  // namespace collab::protocol
