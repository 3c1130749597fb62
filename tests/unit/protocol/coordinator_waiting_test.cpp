// Rounds that wait: for stragglers, for a majority, for sites in a call, for sites that are stuck.
#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::Not;
using H = CoordinatorHarness;

const std::vector<wire::Voter> kThree = voters_of({"paris", "tokyo", "lima"});

using Waiting = ThreeSites;

TEST_F(Waiting, AWaitIsReportedNowAndThen) {
  static_cast<void>(c.hear(1, H::ready(1)));
  const std::string text = notes(c.pass(seconds(125), {1, 2, 3}));
  for (const char* when : {"(10 s)", "(30 s)", "(60 s)", "(120 s)"}) {
    EXPECT_THAT(text, HasSubstr(std::string("round 1: waiting for tokyo, lima ") + when));
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST_F(Waiting, AMajorityGoesOnWithoutAStragglerAfterTheGrace) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.pass(seconds(300), {1, 2, 3}));  // one of three: no grace runs yet
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(2, H::ready(1))).empty());
  EXPECT_TRUE(sent<wire::StartAttempt>(c.pass(seconds(59), {1, 2, 3})).empty());
  const auto actions = c.pass(seconds(2), {1, 2, 3});
  EXPECT_THAT(notes(actions), HasSubstr("[straggler] round 1 goes on without lima"));
  const wire::StartAttempt start = reformed(actions);
  EXPECT_EQ(start.participants.size(), 2U);
  EXPECT_EQ(start.voters, kThree) << "it stays a member";
  static_cast<void>(c.hear(1, H::done(start)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(2, H::done(start))).size(), 2U);
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong})).empty())
      << "it is training";
  const auto late = sent<wire::InstallAnchor>(c.hear(3, H::ready(1)));
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].first, LinkId{3});
  EXPECT_EQ(late[0].second.round, RoundId{1});
  EXPECT_EQ(late[0].second.counted, wire::Counted::kNo);
  static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  static_cast<void>(c.hear(3, H::ready(2, 1, kWrong)));
  static_cast<void>(c.hear(1, H::ready(2, 1, kWrong)));
  EXPECT_EQ(reformed(c.hear(2, H::ready(2, 1, kWrong))).participants.size(), 3U);
}

// lima takes each anchor and is never ready.
TEST_F(Waiting, ASiteNeverReadyCostsTheOthersLessAndLess) {
  const auto ready = [](std::uint64_t round) { return H::ready(round, 1, round == 1 ? kRight : kWrong); };
  const auto round_without_lima = [&](std::uint64_t round) {
    const TimePoint began = c.now;
    static_cast<void>(c.hear(1, ready(round)));
    auto actions = c.hear(2, ready(round));
    while (sent<wire::StartAttempt>(actions).empty()) actions = c.pass(seconds(1), {1, 2, 3});
    const Duration waited = c.now - began;
    const wire::StartAttempt start = reformed(actions);
    EXPECT_EQ(start.participants.size(), 2U);
    for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(start)));
    const wire::AnchorInstalled installed{RunId{7}, RoundId{round}, kWrong};
    for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, installed));
    static_cast<void>(c.hear(3, ready(round)));
    static_cast<void>(c.hear(3, installed));
    return waited;
  };
  EXPECT_GE(round_without_lima(1), seconds(60)) << "the grace";
  EXPECT_LE(round_without_lima(2), seconds(4)) << "it has a rest";
  static_cast<void>(c.pass(seconds(60), {1, 2, 3}));
  EXPECT_GE(round_without_lima(3), seconds(60)) << "after a minute it is waited for again";
  static_cast<void>(c.pass(seconds(90), {1, 2, 3}));
  EXPECT_LE(round_without_lima(4), seconds(4)) << "this rest is longer";
  static_cast<void>(c.pass(seconds(60), {1, 2, 3}));
  EXPECT_GE(round_without_lima(5), seconds(60));
  for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, ready(6)));
  EXPECT_EQ(reformed(c.hear(3, ready(6))).participants.size(), 3U) << "ready with the others it takes part";
}

TEST_F(Waiting, AStragglerThatIsReadyDuringTheAttemptTakesTheAnchorAtOnce) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.hear(2, H::ready(1)));
  const wire::StartAttempt start = reformed(c.pass(seconds(61), {1, 2, 3}));
  EXPECT_TRUE(c.hear(3, H::ready(1)).empty());
  static_cast<void>(c.hear(1, H::done(start)));
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(2, H::done(start))).empty());  // nobody has said what the new one is
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong})).size(), 1U);
}

TEST_F(Waiting, AStragglerThatIsReadyWhenTheAttemptIsLostIsInTheNext) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.hear(2, H::ready(1)));
  static_cast<void>(c.pass(seconds(61), {1, 2, 3}));
  static_cast<void>(c.hear(3, H::ready(1)));
  EXPECT_EQ(
      reformed(c.hear(2, wire::PeerUnreachable{RoundId{1}, AttemptId{1}, SiteId{0}, "no link"})).participants.size(),
      3U);
}

TEST_F(Waiting, WithoutAMajorityReadySitesTrainOnAtTheLimit) {
  static_cast<void>(c.hear(1, H::ready(1)));
  const auto actions = c.pass(seconds(1801), {1, 2, 3});
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::RoundSkipped>(actions)[0].first, LinkId{1});
  EXPECT_THAT(sent<wire::RoundSkipped>(actions)[0].second.reason, HasSubstr("1 of 3 sites were ready within 1800 s"));
  EXPECT_EQ(c.coordinator.members(), 3U);
}

TEST_F(Waiting, ARoundAndACallDoNotWaitForEachOther) {
  // paris is ready; the others stand in a sum that waits for it.
  const InCall sum{"all_reduce (sum) of 3 Float", {"paris"}};
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.step(CallsUnderWay{{{"tokyo", sum}, {"lima", sum}}}));
  EXPECT_TRUE(sent<wire::RoundSkipped>(c.pass(seconds(4), {1, 2, 3})).empty());
  const auto actions = c.pass(seconds(2), {1, 2, 3});
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::RoundSkipped>(actions)[0].first, LinkId{1});
  EXPECT_THAT(sent<wire::RoundSkipped>(actions)[0].second.reason,
              HasSubstr("tokyo is in all_reduce (sum) of 3 Float, which waits for paris"));
  EXPECT_EQ(c.coordinator.members(), 3U);
}

TEST_F(Waiting, ASiteInABarrierIsNotWaitedFor) {
  const InCall barrier{"barrier: all_reduce (max) of 1 Long", {"paris"}, true};
  static_cast<void>(c.hear(1, H::ready(1)));
  EXPECT_TRUE(sent<wire::RoundSkipped>(c.step(CallsUnderWay{{{"tokyo", barrier}}})).empty()) << "lima trains on";
  const auto actions = c.step(CallsUnderWay{{{"tokyo", barrier}, {"lima", barrier}}});
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::RoundSkipped>(actions)[0].first, LinkId{1});
  EXPECT_THAT(sent<wire::RoundSkipped>(actions)[0].second.reason, HasSubstr("which waits for paris"));
  // The barrier goes on: all come to its round.
  static_cast<void>(c.step(CallsUnderWay{}));
  for (const std::uint64_t site : {1, 2, 3}) {
    const auto started = c.hear(site, H::ready(1));
    EXPECT_TRUE(sent<wire::RoundSkipped>(started).empty());
    if (site == 3) {
      EXPECT_EQ(reformed(started).participants.size(), 3U);
    }
  }
}

TEST_F(Waiting, AMajorityStartsAtOnceWithoutASiteThatStandsInABarrierForIt) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.step(CallsUnderWay{{{"lima", {"barrier: x", {"paris", "tokyo"}, true}}}}));
  const auto actions = c.hear(2, H::ready(1));
  EXPECT_EQ(reformed(actions).participants.size(), 2U);
  EXPECT_THAT(notes(actions), HasSubstr("goes on without lima: lima is in barrier: x, which waits for paris"));
}

TEST_F(Waiting, ASiteInACallMayTrainAlongside) {
  const InCall barrier{"barrier: x", {"paris"}, true};
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.step(CallsUnderWay{{{"tokyo", barrier}, {"lima", {"all_reduce", {"paris"}, false}}}}));
  EXPECT_TRUE(sent<wire::RoundSkipped>(c.pass(seconds(4), {1, 2, 3})).empty());
  // It has come to its round: only who stands is left, and a majority is ready.
  EXPECT_EQ(reformed(c.hear(3, H::ready(1))).participants.size(), 2U);
}

TEST_F(Waiting, AMajorityGoesOnWithoutASiteThatWaitsForItInACall) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.hear(2, H::ready(1)));
  static_cast<void>(c.step(CallsUnderWay{{{"lima", {"barrier", {"paris", "tokyo"}}}}}));
  const auto actions = c.pass(seconds(6), {1, 2, 3});
  EXPECT_EQ(reformed(actions).participants.size(), 2U);
  EXPECT_THAT(notes(actions), HasSubstr("goes on without lima: lima is in barrier, which waits for paris"));
}

TEST_F(Waiting, ASiteWaitingInACallForAnotherIsWaitedFor) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.step(CallsUnderWay{{{"lima", {"barrier", {"tokyo"}}}}}));
  EXPECT_TRUE(sent<wire::RoundSkipped>(c.pass(seconds(30), {1, 2, 3})).empty());
  static_cast<void>(c.step(CallsUnderWay{}));
  static_cast<void>(c.hear(2, H::ready(1)));
  EXPECT_EQ(reformed(c.hear(3, H::ready(1))).participants.size(), 3U);
}

TEST_F(Waiting, AMinorityTrainsOnAtOnce) {
  static_cast<void>(c.close(2));
  static_cast<void>(c.close(3));
  const auto actions = c.hear(1, H::ready(1));
  EXPECT_TRUE(sent<wire::StartAttempt>(actions).empty());
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 1U);
  EXPECT_THAT(
      sent<wire::RoundSkipped>(actions)[0].second.reason,
      HasSubstr("1 of the 3 sites that agreed on round 0, which is not a majority; missing: tokyo, lima; if they will "
                "not come back, say so where the others can hear it: collab forget tokyo lima"));
  EXPECT_THAT(notes(actions), HasSubstr("[no-quorum]"));
  EXPECT_EQ(all<Note>(actions).back().level, Note::Level::kWarning);
  const auto again = c.hear(1, H::ready(1));
  ASSERT_EQ(sent<wire::RoundSkipped>(again).size(), 1U);
  EXPECT_EQ(all<Note>(again).back().level, Note::Level::kDebug) << "it is the same at every trigger";
}

TEST_F(Waiting, ALeavingSiteAgreesThatTheOthersGoOn) {
  static_cast<void>(c.hear(2, wire::Leave{"trained to the end"}));
  static_cast<void>(c.hear(3, wire::Leave{"trained to the end"}));
  EXPECT_EQ(reformed(c.hear(1, H::ready(1))).participants.size(), 1U);
}

// It accepts whatever the others do, and goes on doing so when another one is lost.
TEST_F(Waiting, ASiteThatLeftCountsForGood) {
  static_cast<void>(c.hear(3, wire::Leave{"trained to the end"}));
  static_cast<void>(c.close(2));
  const wire::StartAttempt start = reformed(c.hear(1, H::ready(1)));
  EXPECT_EQ(start.participants.size(), 1U);
  EXPECT_EQ(start.voters, voters_of({"paris"})) << "and is no part of the next membership";
}

TEST(WaitingOfTwo, AReturningSiteWithItsRecordMakesAMajorityAgain) {
  H c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.close(2));
  EXPECT_EQ(sent<wire::RoundSkipped>(c.hear(1, H::ready(1))).size(), 1U);
  wire::Join back = member_of("tokyo", {RunId{7}, RoundId{0}, kRight}, voters_of({"paris", "tokyo"}));
  back.offer = {RunId{0}, RoundId{0}, kWrong};  // not its anchor
  const auto install = sent<wire::InstallAnchor>(c.hear(5, back));
  ASSERT_EQ(install.size(), 1U);
  EXPECT_EQ(install[0].second.sources, std::vector{SiteId{0}});
  static_cast<void>(c.hear(5, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  static_cast<void>(c.hear(5, H::ready(1)));
  const auto started = sent<wire::StartAttempt>(c.hear(1, H::ready(1)));
  ASSERT_EQ(started.size(), 2U);
  EXPECT_EQ(started[0].second.participants.size(), 2U);
}

class SlowExchange : public Waiting {
 protected:
  // Until the limit for a round; these say that something moves, the others that they lack that one's part.
  H::Actions exchange(const std::set<std::uint64_t>& moving, const std::vector<SiteId>& lacked = {}) {
    H::Actions all_actions;
    const TimePoint end = c.now + seconds(1801);
    while (c.now < end) {
      for (const std::uint64_t link : {1, 2, 3, 4, 5}) {
        const bool moves = moving.contains(link);
        const std::vector<SiteId> slow = slow_.contains(link) ? slow_.at(link) : std::vector<SiteId>{};
        const wire::Exchanged said{moves ? ahead_ + ++moved_ : 0, false, moves ? slow : lacked};
        if (c.said.contains(link)) keep(c.hear(link, wire::Heartbeat{1, false, 0, said}), all_actions);
      }
      keep(c.pass(seconds(1)), all_actions);
    }
    return all_actions;
  }
  static void keep(H::Actions more, H::Actions& in) {
    for (auto& action : more) in.push_back(std::move(action));
  }
  std::map<std::uint64_t, std::vector<SiteId>> slow_;  // of those that move: whose contributions come slowly
  std::uint64_t ahead_ = 0, moved_ = 0;
};

TEST_F(SlowExchange, GoesOnWithoutThoseThatAreNotDone) {
  const wire::StartAttempt start = c.start(1, 3);
  static_cast<void>(c.hear(1, H::done(start)));
  static_cast<void>(c.hear(2, H::done(start)));
  const auto actions = exchange({1, 2, 3});
  EXPECT_THAT(notes(actions), HasSubstr("[straggler] round 1: the exchange at lima was not finished within 1800 s"));
  EXPECT_EQ(reformed(actions).participants.size(), 2U);
  EXPECT_EQ(c.coordinator.members(), 3U);
}

// A contribution that comes slowly keeps the others from being done.
TEST_F(SlowExchange, GoesOnWithoutTheSiteThatSendsNoContribution) {
  static_cast<void>(c.start(1, 3));
  slow_ = {{1, {SiteId{2}}}, {2, {SiteId{2}}}};
  const auto actions = exchange({1, 2, 3});
  EXPECT_THAT(notes(actions), HasSubstr("[straggler] round 1: the exchange at lima was not finished within 1800 s"));
  EXPECT_THAT(notes(actions), Not(HasSubstr("the exchange at paris was not")));
  EXPECT_EQ(reformed(actions).participants.size(), 2U);
}

TEST_F(SlowExchange, GetsMoreTimeWhileAllSitesMakeProgress) {
  const wire::StartAttempt start = c.start(1, 3);
  for (int times = 0; times < 2; ++times) {
    const auto actions = exchange({1, 2, 3});
    EXPECT_THAT(notes(actions), HasSubstr("it is making progress, so it gets the same time again [round.slow]"));
    EXPECT_TRUE(sent<wire::StartAttempt>(actions).empty()) << "what has come stands";
  }
  for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(start)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(3, H::done(start))).size(), 3U);
}

// On two equal lines one is done first, and cannot go on alone.
TEST_F(SlowExchange, IsWaitedForWhileTooFewSitesAreDone) {
  const wire::StartAttempt start = c.start(1, 3);
  static_cast<void>(c.hear(1, H::done(start)));
  const auto actions = exchange({2, 3});
  EXPECT_THAT(notes(actions), HasSubstr("[round.slow]"));
  EXPECT_THAT(notes(actions), Not(HasSubstr("[straggler]")));
  static_cast<void>(c.hear(2, H::done(start)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(3, H::done(start))).size(), 3U);
}

// One owner's word about another site sets nobody aside: here lima's own line is slow.
TEST_F(SlowExchange, BlamesNoSiteOnTheReportOfOne) {
  static_cast<void>(c.start(1, 3));
  slow_ = {{3, {SiteId{0}}}};
  const auto actions = exchange({1, 2, 3});
  EXPECT_THAT(notes(actions), HasSubstr("[round.slow]"));
  EXPECT_THAT(notes(actions), Not(HasSubstr("[straggler]")));
}

TEST_F(SlowExchange, EndsAtLastWithoutNamingAnybody) {
  static_cast<void>(c.start(1, 3));
  for (int times = 0; times < 2; ++times) static_cast<void>(exchange({1, 2, 3}));
  const auto actions = exchange({1, 2, 3});
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 3U);
  EXPECT_EQ(sent<wire::RoundSkipped>(actions)[0].second.reason,
            "its exchange was not finished within 1800 s (COLLAB_ROUND_TIMEOUT), 3 times");
  EXPECT_THAT(notes(actions), Not(HasSubstr("[straggler]")));
  EXPECT_EQ(c.coordinator.members(), 3U);
}

// Sites that trickle show movement, and get nowhere.
TEST_F(SlowExchange, EndsIfSitesMakeHardlyAnyProgress) {
  static_cast<void>(c.start(1, 3));
  ahead_ = 1'000'000;
  EXPECT_TRUE(sent<wire::RoundSkipped>(exchange({1, 2, 3})).empty());
  const auto actions = exchange({1, 2, 3});
  ASSERT_EQ(sent<wire::RoundSkipped>(actions).size(), 3U);
  EXPECT_EQ(sent<wire::RoundSkipped>(actions)[0].second.reason,
            "its exchange was not finished within 1800 s (COLLAB_ROUND_TIMEOUT), 2 times");
}

// Time that was waited for a joiner is not the exchange's.
TEST_F(SlowExchange, HasTheWholeLimitFromItsBegin) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.pass(seconds(50), {1, 2, 3}));
  static_cast<void>(c.hear(2, H::ready(1)));
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(3, H::ready(1))).size(), 3U);
  const TimePoint begun = c.now;
  H::Actions actions;
  while (c.now < begun + seconds(1790)) {
    for (const std::uint64_t link : {1, 2, 3}) {
      const auto moved = static_cast<std::uint64_t>(c.now.time_since_epoch().count());
      keep(c.hear(link, wire::Heartbeat{1, false, 0, {moved, false, {}}}), actions);
    }
    keep(c.pass(seconds(1)), actions);
  }
  EXPECT_THAT(notes(actions), Not(HasSubstr("[round.slow]")));
}

TEST_F(Waiting, ASiteStuckInstallingTheAnchorIsDropped) {
  wire::Join late = join_of("oslo");
  late.offer.digest = kWrong;
  static_cast<void>(c.hear(4, late));
  H::Actions actions;
  for (std::uint64_t bytes = 1; bytes <= 1801; ++bytes) {  // something comes all the time
    for (auto& action : c.hear(4, wire::Heartbeat{1, false, bytes})) actions.push_back(std::move(action));
    for (auto& action : c.pass(seconds(1), {1, 2, 3})) actions.push_back(std::move(action));
  }
  ASSERT_EQ(sent<wire::Refuse>(actions).size(), 1U);
  EXPECT_THAT(sent<wire::Refuse>(actions)[0].second.reason,
              HasSubstr("1.8 kB had arrived. If its line needs longer, raise COLLAB_ROUND_TIMEOUT"));
  EXPECT_EQ(c.coordinator.members(), 3U);
}

TEST_F(Waiting, TheReadyOnesLossEndsTheWait) {
  static_cast<void>(c.hear(1, H::ready(1)));
  static_cast<void>(c.close(1));
  const auto actions = c.pass(seconds(4000), {2, 3});
  EXPECT_THAT(notes(actions), Not(HasSubstr("[waiting]")));
  EXPECT_EQ(c.coordinator.members(), 2U);  // nobody waits, so nobody is late
}

}  // namespace
}  // namespace collab::protocol
