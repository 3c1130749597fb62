// Rounds at the coordinator: formed, formed again, repaired, committed, bounded.
#include <gmock/gmock.h>

#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using H = CoordinatorHarness;

const std::vector<wire::Voter> kThree = voters_of({"paris", "tokyo", "lima"});

std::set<SiteId> owners_of(const wire::StartAttempt& start) {
  std::set<SiteId> owners;
  for (const wire::Slice& slice : start.slices) owners.insert(slice.owner);
  return owners;
}

using Round = ThreeSites;

TEST_F(Round, StartsOnceAllAreReady) {
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(1, H::ready(1, 10))).empty());
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(3, H::ready(1, 0))).empty());
  const auto starts = sent<wire::StartAttempt>(c.hear(2, H::ready(1, 30)));
  ASSERT_EQ(starts.size(), 3U);
  const wire::StartAttempt& start = starts[0].second;
  EXPECT_EQ(start.attempt, AttemptId{1});
  EXPECT_EQ(start.run, RunId{7});
  EXPECT_EQ(start.participants, (std::vector<wire::Participant>{{SiteId{0}, "paris", 10, AttemptId{1}},
                                                                {SiteId{1}, "tokyo", 30, AttemptId{1}},
                                                                {SiteId{2}, "lima", 0, AttemptId{1}}}));
  ASSERT_EQ(start.slices.size(), 3U);
  EXPECT_EQ(start.slices.back().range.end, 4096U);
}

TEST_F(Round, CommitsOnceAllAreDoneAlike) {
  const wire::StartAttempt start = c.start(1, 3);
  EXPECT_TRUE(sent<wire::Commit>(c.hear(1, H::done(start))).empty());
  EXPECT_TRUE(sent<wire::Commit>(c.hear(2, H::done(start))).empty());
  const auto actions = c.hear(3, H::done(start));
  ASSERT_EQ(sent<wire::Commit>(actions).size(), 3U);
  EXPECT_EQ(sent<wire::Commit>(actions)[0].second,
            (wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}, SiteId{2}}}));
  EXPECT_THAT(notes(actions), HasSubstr("[round] round 1: paris, tokyo, lima"));
  EXPECT_EQ(c.start(2, 3).attempt, AttemptId{1});
}

TEST_F(Round, DoneOfAnotherAttemptOrTermDoesNotCount) {
  const wire::StartAttempt start = c.start(1, 3);
  for (std::uint64_t link = 1; link <= 3; ++link) {
    wire::Done stale = H::done(start);
    stale.attempt = AttemptId{9};
    EXPECT_TRUE(c.hear(link, stale).empty());
    stale = H::done(start);
    stale.term = TermId{2};
    EXPECT_TRUE(c.hear(link, stale).empty());
  }
}

TEST_F(Round, DoneWithTheWrongNumberOfSlicesExpels) {
  const wire::StartAttempt start = c.start(1, 3);
  wire::Done odd = H::done(start);
  odd.slices.pop_back();
  const auto actions = c.hear(3, odd);
  EXPECT_THAT(sent<wire::Refuse>(actions)[0].second.reason, HasSubstr("[round.digest-count]"));
  EXPECT_EQ(reformed(actions).participants.size(), 2U);
}

// Its weight is a site's own word.
TEST(RoundOfEquals, EverySiteCountsAlike) {
  H c;
  for (const std::uint64_t link : {1, 2}) {
    wire::Join join = join_of(link == 1 ? "paris" : "tokyo", 2);
    join.settings.push_back({"weight", "equal"});
    static_cast<void>(c.hear(link, join));
  }
  for (const std::uint64_t link : {1, 2})
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  wire::Ready heavy = H::ready(1);
  heavy.weight = wire::kMaxWeight;
  static_cast<void>(c.hear(1, heavy));
  const auto starts = sent<wire::StartAttempt>(c.hear(2, H::ready(1)));
  ASSERT_EQ(starts.size(), 2U);
  for (const wire::Participant& participant : starts[0].second.participants) EXPECT_EQ(participant.weight, 1);
  EXPECT_TRUE(c.hear(1, heavy).empty()) << "said twice, it is the same word";
}

TEST_F(Round, NoSiteHasAWeight) {
  static_cast<void>(c.hear(1, H::ready(1, 0)));
  static_cast<void>(c.hear(2, H::ready(1, 0)));
  const auto starts = sent<wire::StartAttempt>(c.hear(3, H::ready(1, 0)));
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_TRUE(starts[0].second.slices.empty());
  for (std::uint64_t link = 1; link < 3; ++link) static_cast<void>(c.hear(link, H::done(starts[0].second)));
  const auto commits = sent<wire::Commit>(c.hear(3, H::done(starts[0].second)));
  ASSERT_EQ(commits.size(), 3U);
  EXPECT_EQ(commits[0].second, (wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {}}));
  EXPECT_EQ(c.start(2, 3).round, RoundId{2});
}

TEST_F(Round, ReadyForAnotherRoundIsIgnored) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.hear(2, H::ready(1)));
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(3, H::ready(2))).empty());
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(3, H::ready(1))).size(), 3U);
}

TEST_F(Round, ALostMemberIsLeftOut) {
  static_cast<void>(c.start(1, 3));
  const wire::StartAttempt again = reformed(c.close(2));
  EXPECT_EQ(again.attempt, AttemptId{2});
  EXPECT_EQ(again.participants.size(), 2U);
  static_cast<void>(c.hear(1, H::done(again)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(3, H::done(again)))[0].second.contributors.size(), 2U);
}

// What the owners that stay hold is not sent again.
TEST_F(Round, AfterALossOwnersKeepTheirSlicesAndWhatTheyHoldStands) {
  const wire::StartAttempt start = c.start(1, 3);
  const wire::StartAttempt again = reformed(c.close(2));
  EXPECT_EQ(again.participants[0], (wire::Participant{SiteId{0}, "paris", 1, AttemptId{1}}));
  EXPECT_EQ(again.participants[1], (wire::Participant{SiteId{2}, "lima", 1, AttemptId{1}}));
  EXPECT_EQ(again.slices.front(), start.slices.front());
  EXPECT_EQ(again.slices.back(), start.slices.back());
  ASSERT_EQ(again.slices.size(), 4U);  // tokyo's, in two
  EXPECT_EQ(again.slices[1].owner, SiteId{0});
  EXPECT_EQ(again.slices[2].owner, SiteId{2});
  EXPECT_EQ(again.slices[1].range.begin, start.slices[1].range.begin);
}

TEST_F(Round, AnExchangeWithALaterSiteDoesNotStand) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.hear(2, H::ready(1)));
  const wire::StartAttempt two = reformed(c.pass(seconds(61), {1, 2, 3}));
  ASSERT_EQ(two.participants.size(), 2U);
  static_cast<void>(c.hear(3, H::ready(1)));
  const wire::StartAttempt three =
      reformed(c.hear(1, wire::PeerUnreachable{RoundId{1}, two.attempt, SiteId{1}, "no link"}));
  EXPECT_EQ(three.participants[0].since, two.attempt);
  EXPECT_EQ(three.participants[1].since, two.attempt);
  EXPECT_EQ(three.participants[2].since, three.attempt);
}

TEST_F(Round, ASiteKnowsSinceWhenItsParametersStandStill) {
  static_cast<void>(c.start(1, 3));
  const wire::StartAttempt two = reformed(c.close(2));
  wire::Join back = join_of("tokyo", 3);
  back.index = 1;
  back.offer = {RunId{7}, RoundId{0}, kRight};
  static_cast<void>(c.hear(9, back));
  static_cast<void>(c.hear(1, wire::PeerUnreachable{RoundId{1}, two.attempt, SiteId{2}, "no link"}));
  static_cast<void>(c.hear(9, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  wire::Ready ready = H::ready(1);
  ready.since = AttemptId{1};
  const wire::StartAttempt start = reformed(c.hear(9, ready));
  ASSERT_EQ(start.participants.size(), 3U);
  EXPECT_EQ(start.participants[1], (wire::Participant{SiteId{1}, "tokyo", 1, AttemptId{1}}));
}

TEST_F(Round, AReadySinceAnUnknownAttemptCountsAsSinceThisOne) {
  wire::Ready ready = H::ready(1);
  ready.since = AttemptId{77};
  static_cast<void>(c.hear(1, ready));
  static_cast<void>(c.hear(2, H::ready(1)));
  EXPECT_EQ(reformed(c.hear(3, H::ready(1))).participants[0].since, AttemptId{1});
}

TEST_F(Round, AfterAWrongMeanEverythingIsSentAgain) {
  const wire::StartAttempt start = c.start(1, 3);
  static_cast<void>(c.hear(1, H::done(start)));
  static_cast<void>(c.hear(2, H::done(start, {6, 6})));
  const wire::StartAttempt again = reformed(c.hear(3, H::done(start)));
  for (const wire::Participant& p : again.participants) EXPECT_EQ(p.since, again.attempt);
}

TEST_F(Round, DecliningTakesTheMeanWithoutContributing) {
  static_cast<void>(c.start(1, 3));
  const auto actions = c.hear(2, wire::Decline{RoundId{1}, AttemptId{1}, "NaN in wte.weight"});
  EXPECT_THAT(notes(actions), HasSubstr("without the contribution of tokyo: NaN in wte.weight"));
  const auto told = sent<wire::Notice>(actions);  // the others, in the same words
  ASSERT_EQ(told.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(told[i].first, LinkId{2 * i + 1});
    EXPECT_EQ(told[i].second.event, "declined");
    EXPECT_EQ(told[i].second.text,
              "round 1 goes on without the contribution of tokyo: NaN in wte.weight [round.declined]");
  }
  const wire::StartAttempt again = reformed(actions);
  EXPECT_EQ(again.participants[1], (wire::Participant{SiteId{1}, "tokyo", 0, AttemptId{1}}));
  EXPECT_TRUE(c.hear(2, wire::Decline{RoundId{1}, AttemptId{1}, "late"}).empty());
}

// It contributes nothing after the first time, so there is nothing to decline: it would only end the others' attempts.
TEST_F(Round, ASiteThatDeclinesTwiceIsExpelled) {
  static_cast<void>(c.start(1, 3));
  static_cast<void>(c.hear(2, wire::Decline{RoundId{1}, AttemptId{1}, "NaN"}));
  const auto again = c.hear(2, wire::Decline{RoundId{1}, AttemptId{2}, "NaN"});
  EXPECT_THAT(notes(again), HasSubstr("it declined round 1 again"));
  EXPECT_EQ(reformed(again).participants.size(), 2U);
}

TEST_F(Round, WhenAllDeclineTheAnchorStands) {
  wire::StartAttempt start = c.start(1, 3);
  H::Actions last;
  for (std::uint64_t link = 1; link <= 3; ++link) {
    last = c.hear(link, wire::Decline{RoundId{1}, AttemptId{static_cast<std::uint32_t>(link)}, "NaN"});
  }
  const wire::StartAttempt idle = reformed(last);
  EXPECT_TRUE(idle.slices.empty());
  for (std::uint64_t link = 1; link <= 3; ++link) last = c.hear(link, H::done(idle));
  EXPECT_TRUE(sent<wire::Commit>(last).at(0).second.contributors.empty());
}

TEST_F(Round, TwoThatCannotExchangeOwnNothing) {
  static_cast<void>(c.start(1, 3));
  // The pair counts, whichever of the two reports it.
  c.now += seconds(4);
  wire::StartAttempt start = reformed(c.hear(2, wire::PeerUnreachable{RoundId{1}, AttemptId{1}, SiteId{2}, "no link"}));
  EXPECT_EQ(start.slices.size(), 3U);
  c.now += seconds(4);
  start = reformed(c.hear(3, wire::PeerUnreachable{RoundId{1}, AttemptId{2}, SiteId{1}, "no link"}));
  EXPECT_EQ(start.participants.size(), 3U);
  EXPECT_EQ(owners_of(start), std::set{SiteId{0}});
  EXPECT_EQ(c.coordinator.members(), 3U);
  // The next rounds begin so; after some it is tried again.
  for (std::uint64_t number = 2; number <= 11; ++number) {
    for (std::uint64_t link = 1; link <= 3; ++link) {
      static_cast<void>(c.hear(link, H::done(start)));
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{number - 1}, kRight}));
    }
    start = c.start(number, 3);
    EXPECT_EQ(start.slices.size(), number <= 9 ? 1U : 3U) << number;
  }
}

TEST_F(Round, ASiteCutOffFromMostIsNotWaitedFor) {
  static_cast<void>(c.start(1, 3));
  // paris reaches nobody; it says so first, and blames the others.
  std::vector<CoordinatorAction> actions;
  for (std::uint32_t attempt = 1; attempt <= 4; ++attempt) {
    const SiteId peer{attempt <= 2 ? 1U : 2U};
    c.now += seconds(4);
    actions = c.hear(1, wire::PeerUnreachable{RoundId{1}, AttemptId{attempt}, peer, "no link"});
  }
  EXPECT_THAT(notes(actions), HasSubstr("[straggler] round 1 goes on without paris, which cannot exchange with the"));
  const wire::StartAttempt start = reformed(actions);
  EXPECT_EQ(start.participants, (std::vector<wire::Participant>{{SiteId{1}, "tokyo", 1, AttemptId{1}},
                                                                {SiteId{2}, "lima", 1, AttemptId{1}}}));
  EXPECT_EQ(owners_of(start), (std::set{SiteId{1}, SiteId{2}}));
  EXPECT_EQ(c.coordinator.members(), 3U);
}

TEST_F(Round, TwoSitesThatCannotExchangeAreNeitherToBlame) {
  H two;
  two.gather({"paris", "tokyo"});
  static_cast<void>(two.start(1, 2));
  // Within moments it may be one failure seen by both.
  for (std::uint32_t attempt = 1; attempt <= 2; ++attempt) {
    const auto again = two.hear(1, wire::PeerUnreachable{RoundId{1}, AttemptId{attempt}, SiteId{1}, "no link"});
    EXPECT_EQ(sent<wire::StartAttempt>(again).size(), 2U);
  }
  two.now += seconds(4);
  const auto actions = two.hear(1, wire::PeerUnreachable{RoundId{1}, AttemptId{3}, SiteId{1}, "no link"});
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 2U);
  EXPECT_THAT(sent<wire::RoundSkipped>(actions)[0].second.reason,
              HasSubstr("paris cannot exchange with tokyo: no link; without one of the two 1 of the 2 sites"));
  EXPECT_EQ(two.coordinator.members(), 2U);
  EXPECT_EQ(two.start(1, 2).slices.size(), 2U);
}

TEST_F(Round, ASwarmThatBeginsAnewAfterManyRoundsCommitsItsFirst) {
  for (std::uint64_t number = 1; number <= 70; ++number) {
    const wire::StartAttempt start = c.start(number, 3);
    for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(c.hear(link, H::done(start)));
    for (std::uint64_t link = 1; link <= 3; ++link) {
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{number}, kRight}));
    }
  }
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(c.hear(link, wire::Leave{"the end"}));
  std::uint64_t link = 11;
  std::vector<CoordinatorAction> last;
  for (const char* name : {"paris", "tokyo", "lima"}) last = c.hear(link++, join_of(name, 3));
  const RunId run = sent<wire::InstallAnchor>(last).at(0).second.run;
  EXPECT_NE(run, RunId{7});
  for (link = 11; link <= 13; ++link) static_cast<void>(c.hear(link, wire::AnchorInstalled{run, RoundId{0}, kRight}));
  for (link = 11; link <= 13; ++link) last = c.hear(link, H::ready(1));
  const wire::StartAttempt start = reformed(last);
  for (link = 11; link <= 13; ++link) last = c.hear(link, H::done(start));
  EXPECT_EQ(sent<wire::Commit>(last).size(), 3U);
}

TEST_F(Round, AnotherAttemptFollowsOneThatAnySiteGaveUp) {
  static_cast<void>(c.start(1, 3));
  const auto actions = c.hear(2, wire::PeerUnreachable{RoundId{1}, AttemptId{1}, SiteId{9}, "too many chunks"});
  EXPECT_THAT(notes(actions),
              HasSubstr("tokyo cannot go on because of site 9, which has no part in the attempt: too many chunks"));
  EXPECT_EQ(reformed(actions).attempt, AttemptId{2});
}

// From the attempt in flight on, `fail` gives the next one up each time: until tokyo has no part any more.
template <typename F>
wire::StartAttempt fail_until_without_tokyo(H& c, F fail) {
  wire::StartAttempt start = c.start(1, 3);
  std::string told;
  for (int i = 1; start.participants.size() == 3; ++i) {
    const auto actions = fail(start, i);
    const auto starts = sent<wire::StartAttempt>(actions);
    if (starts.empty() || i > 20) return ADD_FAILURE() << i << ": " << notes(actions), wire::StartAttempt{};
    start = starts[0].second;
    told = notes(actions);
  }
  EXPECT_THAT(told, HasSubstr("round 1 goes on without tokyo, which made an attempt fail 9 times in this round"));
  return start;
}

TEST_F(Round, ASiteThatKeepsGivingUpIsLeftOutOfTheRound) {
  const auto start = fail_until_without_tokyo(c, [this](const wire::StartAttempt& in, int) {
    return c.hear(2, wire::PeerUnreachable{RoundId{1}, in.attempt, SiteId{9}, "too many chunks"});
  });
  static_cast<void>(c.hear(1, H::done(start)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(3, H::done(start))).size(), 2U);
  // Only of that one.
  const wire::AnchorInstalled installed{RunId{7}, RoundId{1}, kRight};
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(1, installed)).size(), 1U);
  for (const std::uint64_t link : {2, 3}) static_cast<void>(c.hear(link, installed));
  EXPECT_EQ(c.start(2, 3).participants.size(), 3U);
}

TEST_F(Round, ASiteThatKeepsReportingAPeerItDoesNotNeedIsLeftOut) {
  fail_until_without_tokyo(c, [this](const wire::StartAttempt& in, int) {
    return c.hear(2, wire::PeerUnreachable{RoundId{1}, in.attempt, SiteId{0}, "no link"});
  });
}

TEST_F(Round, ASiteThatHasOtherSamplesTimeAfterTimeIsLeftOut) {
  fail_until_without_tokyo(c, [this](const wire::StartAttempt&, int i) { return c.hear(2, H::ready(1, 1 + i)); });
}

struct RoundOfGuests : Round {
  H::Actions come(std::uint64_t link) {
    static_cast<void>(c.hear(link, join_of("guest" + std::to_string(link))));
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    return c.hear(link, H::ready(1));
  }
  // Of round 1, by three members and these.
  wire::StartAttempt with(const std::vector<std::uint64_t>& guests) {
    for (const std::uint64_t link : guests) static_cast<void>(come(link));
    for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::ready(1)));
    return reformed(c.hear(3, H::ready(1)));
  }
};

TEST_F(RoundOfGuests, OnlyTheFirstGuestTakesPartAfterALossAndNoneAfterTheNext) {
  ASSERT_EQ(with({11, 12, 13}).participants.size(), 6U);
  const auto once = c.close(13);
  EXPECT_THAT(notes(once),
              HasSubstr("sites that have not been in any round yet (but with guest11, which came first): attempts at "
                        "it failed because of guest13 [round.newcomers-out]"));
  EXPECT_THAT(reformed(once).voters, testing::SizeIs(4));
  static_cast<void>(come(14));
  EXPECT_TRUE(sent<wire::StartAttempt>(c.close(12)).empty()) << "it had no part";
  const auto twice = c.close(11);
  EXPECT_THAT(notes(twice),
              HasSubstr("sites that have not been in any round yet: attempts at it failed because of guest11"));
  const wire::StartAttempt start = reformed(twice);
  EXPECT_THAT(start.voters, testing::SizeIs(3));
  for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(start)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(3, H::done(start))).size(), 3U);
}

// An attacker's new names come after the sites that wait already.
TEST_F(RoundOfGuests, AFailingNewerGuestKeepsNoOlderOneOutOfARound) {
  static_cast<void>(with({11, 12}));
  const wire::StartAttempt start = reformed(c.close(12));
  for (const std::uint64_t link : {1, 2, 11}) static_cast<void>(c.hear(link, H::done(start)));
  const auto commit = c.hear(3, H::done(start));
  ASSERT_EQ(sent<wire::Commit>(commit).size(), 4U);
  EXPECT_THAT(start.voters, testing::Contains(testing::Field(&wire::Voter::name, "guest11"))) << "it has a say now";
}

TEST_F(RoundOfGuests, TwoFailingNewerGuestsKeepNoOlderOneOutOfARound) {
  const wire::StartAttempt start = with({11, 12, 13});
  for (const std::uint64_t link : {1, 2, 3, 11}) static_cast<void>(c.hear(link, H::done(start)));
  static_cast<void>(c.hear(12, H::done(start, kWrong)));
  const auto actions = c.hear(13, H::done(start, kWrong));
  EXPECT_THAT(notes(actions), HasSubstr("failed because of guest12, guest13 [round.newcomers-out]"));
  const auto named = testing::Field(&wire::Participant::name, "guest11");
  EXPECT_THAT(reformed(actions).participants, testing::AllOf(testing::SizeIs(4), testing::Contains(named)));
}

TEST_F(Round, ASiteThatFailsItsOwnPartOwnsNothing) {
  wire::StartAttempt start = c.start(1, 3);
  for (int failures = 0; failures < 4; ++failures) {
    EXPECT_EQ(owners_of(start).size(), 3U);
    const auto actions = c.hear(2, wire::PeerUnreachable{RoundId{1}, start.attempt, SiteId{1}, "the sum overflows"});
    EXPECT_THAT(notes(actions),
                HasSubstr("tokyo cannot do its part of the exchange: the sum overflows; another attempt is formed"));
    start = reformed(actions);
  }
  EXPECT_THAT(owners_of(start), ElementsAre(SiteId{0}, SiteId{2}));
  EXPECT_EQ(start.participants.size(), 3U) << "it still contributes";
}

TEST_F(Round, TheSitesTrainOnIfNoneCanDoItsPart) {
  wire::StartAttempt start = c.start(1, 3);
  H::Actions last;
  for (std::uint64_t link = 1; sent<wire::RoundSkipped>(last).empty(); link = link % 3 + 1) {
    ASSERT_LT(start.attempt, AttemptId{20});
    last =
        c.hear(link, wire::PeerUnreachable{RoundId{1}, start.attempt, start.participants[link - 1].site, "no memory"});
    if (const auto starts = sent<wire::StartAttempt>(last); !starts.empty()) start = starts[0].second;
  }
  EXPECT_EQ(sent<wire::RoundSkipped>(last).size(), 3U);
  EXPECT_THAT(sent<wire::RoundSkipped>(last)[0].second.reason,
              HasSubstr("cannot do its part of the exchange: no memory; without it"));
}

TEST_F(Round, ASiteWithAnotherAnchorIsRepairedFirst) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.hear(2, H::ready(1, 1, kWrong)));
  const auto actions = c.hear(3, H::ready(1));
  EXPECT_THAT(notes(actions), HasSubstr("[repair] tokyo holds a different anchor of round 0"));
  ASSERT_EQ(sent<wire::InstallAnchor>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::InstallAnchor>(actions)[0].first, LinkId{2});
  EXPECT_EQ(sent<wire::InstallAnchor>(actions)[0].second,
            (wire::InstallAnchor{
                TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}, SiteId{2}}, kRight, wire::Counted::kNo, kThree}));
  static_cast<void>(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(2, H::ready(1))).size(), 3U);
}

TEST_F(Round, TheMajorityIsRightWhateverItsSites) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.hear(2, H::ready(1, 1, kWrong)));
  const auto actions = c.hear(3, H::ready(1, 1, kWrong));
  EXPECT_THAT(notes(actions), HasSubstr("[repair] paris"));
  EXPECT_EQ(sent<wire::InstallAnchor>(actions)[0].second.digest, kWrong);
}

TEST(RoundOfTwo, TheLowerSiteIsTakenToBeRight) {
  H c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, H::ready(1, 1, kWrong)));
  const auto actions = c.hear(2, H::ready(1));
  EXPECT_THAT(notes(actions), HasSubstr("with two sites, the lower one counts as right"));
  EXPECT_EQ(sent<wire::InstallAnchor>(actions)[0].first, LinkId{2});
}

TEST_F(Round, MeansThatDifferAreAveragedAgainThenTheMinorityGoes) {
  wire::StartAttempt start = c.start(1, 3);
  for (int i = 1; i <= 4; ++i) {
    static_cast<void>(c.hear(1, H::done(start)));
    static_cast<void>(c.hear(2, H::done(start)));
    wire::Done odd = H::done(start);
    odd.slices[1] = kWrong;
    const auto actions = c.hear(3, odd);
    EXPECT_TRUE(sent<wire::Commit>(actions).empty());
    EXPECT_TRUE(sent<wire::Refuse>(actions).empty()) << "the word of others ends nobody's training";
    start = reformed(actions);
    if (i < 4) {
      EXPECT_THAT(notes(actions), HasSubstr("[repair] lima has a different mean of round 1"));
      EXPECT_EQ(start.participants.size(), 3U);
    }
  }
  ASSERT_EQ(start.participants.size(), 2U);
  // In the next round it has one try.
  for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(start)));
  for (const std::uint64_t link : {1, 2, 3})
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  start = c.start(2, 3);
  for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(start)));
  EXPECT_EQ(reformed(c.hear(3, H::done(start, kWrong))).participants.size(), 2U);
}

// If it were only left out, no round could ever begin, and no error would say why.
TEST(RoundOfTwo, ASiteBeyondRepairIsRefused) {
  H c;
  c.gather({"paris", "tokyo"});
  wire::StartAttempt start = c.start(1, 2);
  for (int i = 1; i <= 4; ++i) {
    static_cast<void>(c.hear(1, H::done(start)));
    const auto actions = c.hear(2, H::done(start, kWrong));
    const auto refused = sent<wire::Refuse>(actions);
    ASSERT_EQ(refused.size(), i == 4 ? 1U : 0U) << notes(actions);
    if (i == 4) {
      EXPECT_THAT(refused[0].second.reason, HasSubstr("[round.mean-beyond-repair]"));
    } else {
      start = sent<wire::StartAttempt>(actions).at(0).second;
    }
  }
}

// One peer may be any number of helpers, and of sites that have just come.
TEST_F(Round, OnlyTrainingVotersDecideWhichDigestIsRight) {
  for (std::uint64_t link = 11; link <= 18; ++link) {
    wire::Join join = join_of("guest" + std::to_string(link));
    join.helper = link % 2 == 1;
    static_cast<void>(c.hear(link, join));
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    static_cast<void>(c.hear(link, H::ready(1, 1, kWrong)));
  }
  for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::ready(1)));
  const auto actions = c.hear(3, H::ready(1));
  for (const auto& [link, install] : sent<wire::InstallAnchor>(actions)) {
    EXPECT_GT(link, LinkId{10}) << "the anchor is not taken from guests";
    EXPECT_EQ(install.digest, kRight);
  }
  EXPECT_EQ(sent<wire::InstallAnchor>(actions).size(), 8U);
  H::Actions last;
  for (std::uint64_t link = 11; link <= 18; ++link) {
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    last = c.hear(link, H::ready(1));
  }
  const wire::StartAttempt start = reformed(last);
  ASSERT_EQ(start.voters.size(), 11U);
  for (const std::uint64_t link : {1, 2, 3}) static_cast<void>(c.hear(link, H::done(start)));
  for (std::uint64_t link = 11; link <= 18; ++link) last = c.hear(link, H::done(start, kWrong));
  EXPECT_THAT(notes(last), testing::Not(HasSubstr("paris has a different mean")));
  EXPECT_EQ(reformed(last).voters.size(), 3U) << notes(last);
}

TEST_F(Round, NoAttemptWhileSomebodyJoins) {
  wire::Join late = join_of("oslo");
  late.offer.digest = kWrong;
  static_cast<void>(c.hear(4, late));
  for (std::uint64_t link = 1; link <= 3; ++link)
    EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(link, H::ready(1))).empty());
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(4, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight})).empty());
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(4, H::ready(1))).size(), 4U);
}

TEST(RoundOfTwo, AReadyThatCrossedASkippedRoundIsCorrected) {
  H c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, H::ready(1, 10)));
  ASSERT_EQ(sent<wire::StartAttempt>(c.hear(2, H::ready(1, 20))).size(), 2U);
  EXPECT_TRUE(c.hear(2, H::ready(1, 20)).empty()) << "said twice";
  const auto starts = sent<wire::StartAttempt>(c.hear(2, H::ready(1, 30)));
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].second.participants[1].weight, 30);
}

TEST(RoundWithoutAddress, ASiteThatCannotBeDialledOwnsNothing) {
  H c;
  wire::Join hidden = join_of("paris", 2);
  hidden.address.clear();
  static_cast<void>(c.hear(1, hidden));
  static_cast<void>(c.hear(2, join_of("tokyo", 2)));
  for (std::uint64_t link = 1; link <= 2; ++link)
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  const wire::StartAttempt start = c.start(1, 2);
  ASSERT_EQ(start.slices.size(), 1U);
  EXPECT_EQ(start.slices[0].owner, SiteId{1});
}

TEST(RoundOfALaterTerm, NumbersItsAttemptsApartFromThoseOfOtherTerms) {
  CoordinatorConfig config = H::defaults();
  config.term = TermId{2};
  H c(config);
  c.gather({"paris", "tokyo"});
  EXPECT_EQ(c.start(1, 2).attempt, AttemptId{(1U << 16) + 1});
}

}  // namespace
}  // namespace collab::protocol
