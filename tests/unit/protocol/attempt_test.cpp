// What is asked about one attempt.
#include "core/protocol/agreement/attempt.h"

#include <gtest/gtest.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

// paris and lima contribute; tokyo takes part without a weight; lima is lost.
wire::StartAttempt start() {
  wire::StartAttempt start = SiteHarness::start(5, 2, 3);
  start.participants[1].weight = 0;
  start.participants[2].here = false;
  return start;
}

TEST(Attempt, KnowsItsParticipants) {
  EXPECT_TRUE(takes_part(start(), SiteId{0}));
  EXPECT_TRUE(takes_part(start(), SiteId{1})) << "with or without a weight";
  EXPECT_FALSE(takes_part(start(), SiteId{2}));
  EXPECT_FALSE(takes_part(start(), SiteId{9}));
}

TEST(Attempt, AMemoryTakesPartAsTheVoterItIs) {
  EXPECT_TRUE(takes_part(start(), acceptor_of("paris")));
  EXPECT_FALSE(takes_part(start(), acceptor_of("lima")));
  EXPECT_FALSE(takes_part(start(), acceptor_of("paris", 1))) << "another memory of that name";
  wire::StartAttempt alone = start();
  alone.participants.resize(1);
  alone.slices.clear();
  EXPECT_FALSE(takes_part(alone, acceptor_of("tokyo"))) << "a voter that was left out";
}

TEST(Attempt, ContributorsAreThoseWithAWeight) {
  EXPECT_EQ(contributors_of(start()), (std::vector{SiteId{0}, SiteId{2}}));
}

TEST(Attempt, IsRememberedByItsContributorsNamesAndItsMean) {
  const std::vector<Digest> slices{{1, 1}, {2, 2}};
  EXPECT_EQ(past_of(start(), slices),
            (wire::Past{RunId{7}, RoundId{5}, AttemptId{2}, {"paris", "lima"}, digest_of_mean(slices)}));
}

TEST(Attempt, TheDigestOfAMeanIsOfItsSlicesInTheirOrder) {
  EXPECT_EQ(digest_of_mean({}), Digest{});
  EXPECT_NE(digest_of_mean({{1, 1}}), Digest{});
  EXPECT_NE(digest_of_mean({{1, 1}, {2, 2}}), digest_of_mean({{2, 2}, {1, 1}}));
}

TEST(Attempt, TheMeanIsHeldOnlyOfTheNewestAcceptedAttempt) {
  wire::Report report;
  EXPECT_FALSE(holds_mean(report, start()));
  report.record.proposals = {{start(), true, {{1, 1}}}};
  EXPECT_FALSE(holds_mean(report, start()));
  report.holds_mean = true;
  EXPECT_TRUE(holds_mean(report, start()));
  wire::StartAttempt other = start();
  other.attempt = AttemptId{3};
  EXPECT_FALSE(holds_mean(report, other));
  report.record.proposals[0].accepted = false;
  EXPECT_FALSE(holds_mean(report, start()));
}

}  // namespace
}  // namespace collab::protocol
