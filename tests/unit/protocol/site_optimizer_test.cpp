// The optimizer's state of another member: which member a site asks first and next, what it takes, and when it gives
// up.
#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// tokyo (site 1) has joined a swarm of which it knows paris on link 2; lima and oslo it would have to dial.
class Optimizer : public testing::Test {
 protected:
  Optimizer() {
    s.become(1, {"paris", "tokyo", "lima", "oslo"});
    s.link_to(0, "paris", 2);
  }
  using Actions = SiteHarness::Actions;
  static wire::OptimizerState offer(std::uint64_t bytes = 40) { return {7, bytes, kRight, "{}", {}}; }
  static wire::OptimizerState none(const std::string& reason) { return {0, 0, {}, {}, reason}; }
  Actions find() { return s.step(FindOptimizerSource{}); }
  Actions part(std::uint64_t link, ElementRange range, bool damaged = false) {
    return s.step(OptimizerPart{LinkId{link}, 7, range, damaged});
  }
  static std::vector<wire::FetchOptimizer> asked(const Actions& actions) {
    std::vector<wire::FetchOptimizer> messages;
    for (const auto& [link, message] : sent<wire::FetchOptimizer>(actions)) messages.push_back(message);
    return messages;
  }
  SiteHarness s;
};

TEST_F(Optimizer, StateIsFetchedWholeFromAKnownMember) {
  EXPECT_EQ(sent<wire::FetchOptimizer>(find()).at(0), std::pair(LinkId{2}, wire::FetchOptimizer{}));
  const auto offered = all<OptimizerOffered>(s.hear(2, offer()));
  EXPECT_EQ(offered.at(0).from, "paris");
  EXPECT_EQ(offered.at(0).state, offer());
  EXPECT_EQ(asked(s.step(TakeOptimizer{})).at(0), (wire::FetchOptimizer{7, {0, 40}}));
  const auto whole = part(2, {0, 40});
  EXPECT_EQ(all<TakeOptimizerPart>(whole).at(0).range, (ElementRange{0, 40}));
  EXPECT_EQ(all<OptimizerComplete>(whole).size(), 1U);
  EXPECT_EQ(asked(s.step(EndOptimizer{})).at(0), (wire::FetchOptimizer{7, {}})) << "the copy can go";
}

TEST_F(Optimizer, ComesInPartsOfWhichABoundedNumberIsOnItsWay) {
  s = SiteHarness{};
  wire::Join join = join_of("tokyo");
  join.elements = 40 * kMiB;
  static_cast<void>(s.step(Begin{join}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "tokyo"})));
  s.link_to(0, "paris", 2);
  static_cast<void>(find());
  static_cast<void>(s.hear(2, offer(20 * kMiB + 1)));
  std::vector<wire::FetchOptimizer> questions = asked(s.step(TakeOptimizer{}));
  EXPECT_EQ(questions.size(), 16U);
  std::uint64_t bytes = 0;
  std::size_t whole = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    bytes += questions[i].range.size();
    const auto actions = part(2, questions[i].range);
    whole += all<OptimizerComplete>(actions).size();
    for (const auto& more : asked(actions)) questions.push_back(more);
  }
  EXPECT_EQ(bytes, 20 * kMiB + 1);
  EXPECT_EQ(questions.size(), 21U);
  EXPECT_EQ(whole, 1U);
}

TEST_F(Optimizer, TheNextMemberIsAskedIfOneHasNoState) {
  static_cast<void>(find());
  const auto next = s.hear(2, none("it has not made a step yet"));
  EXPECT_EQ(all<DialPeer>(next).at(0).site, SiteId{2}) << "the next above it";
  EXPECT_EQ(sent<wire::FetchOptimizer>(s.step(PeerConnected{SiteId{2}, LinkId{3}})).size(), 0U);
  const auto linked = s.hear(3, wire::Hello{"swarm", TermId{1}, SiteId{2}, "lima"});
  EXPECT_EQ(sent<wire::FetchOptimizer>(linked).at(0).first, LinkId{3});
  static_cast<void>(s.hear(3, none("its optimizer keeps no state")));
  s.link_to(3, "oslo", 4);
  const auto end = all<NoOptimizer>(s.hear(4, none("COLLAB_JOIN_OPTIMIZER is 0 there")));
  EXPECT_EQ(end.at(0).why.code(), StatusCode::kUnavailable);
  EXPECT_EQ(end.at(0).why.message(),
            "paris: it has not made a step yet; lima: its optimizer keeps no state; oslo: COLLAB_JOIN_OPTIMIZER is 0 "
            "there");
}

TEST_F(Optimizer, StateIsNotSoughtIfNoOtherSiteIsHere) {
  s = SiteHarness{};
  s.become(0, {"paris"});
  EXPECT_EQ(all<NoOptimizer>(find()).at(0).why.message(), "no other site is here");
}

TEST_F(Optimizer, EachMemberIsWaitedForWithinALimit) {
  static_cast<void>(find());
  EXPECT_TRUE(all<NoOptimizer>(s.tick(seconds(64))).empty()) << "a grace, and a little for the answer";
  EXPECT_FALSE(all<DialPeer>(s.tick(seconds(1))).empty()) << "the next";
  const auto end = all<NoOptimizer>(s.pass(seconds(21)));
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(end[0].why.code(), StatusCode::kTimeout);
  EXPECT_THAT(end[0].why.message(), HasSubstr("paris: it has not answered; lima: no link to it within 20 s"));
}

TEST_F(Optimizer, LostMidwayIsAskedOfAnother) {
  static_cast<void>(find());
  static_cast<void>(s.hear(2, offer(100'000)));
  static_cast<void>(s.step(TakeOptimizer{}));
  EXPECT_THAT(all<OptimizerLost>(s.step(Closed{LinkId{2}, unavailable("reset")})).at(0).reason,
              HasSubstr("paris: the link to it was lost"));
  EXPECT_TRUE(part(2, {0, 40}).empty());
  EXPECT_EQ(all<DialPeer>(find()).at(0).site, SiteId{2});
}

TEST_F(Optimizer, StateLostBeforeItIsTakenIsReportedWhenItIsTaken) {
  static_cast<void>(find());
  static_cast<void>(s.hear(2, offer()));
  EXPECT_TRUE(all<OptimizerLost>(s.step(Closed{LinkId{2}, unavailable("reset")})).empty());
  EXPECT_EQ(all<OptimizerLost>(s.step(TakeOptimizer{})).size(), 1U);
}

TEST_F(Optimizer, OtherBytesThanWereOfferedAreNotTaken) {
  for (const bool damaged : {true, false}) {
    static_cast<void>(s.step(EndOptimizer{}));
    static_cast<void>(find());
    static_cast<void>(s.hear(2, offer()));
    static_cast<void>(s.step(TakeOptimizer{}));
    const auto lost = part(2, {0, damaged ? 40U : 39U}, damaged);
    EXPECT_TRUE(all<TakeOptimizerPart>(lost).empty());
    EXPECT_THAT(all<OptimizerLost>(lost).at(0).reason, HasSubstr(damaged ? "were damaged" : "was not asked for"));
  }
  static_cast<void>(s.step(EndOptimizer{}));
  static_cast<void>(find());
  static_cast<void>(s.hear(2, offer()));
  static_cast<void>(s.step(TakeOptimizer{}));
  static_cast<void>(part(2, {0, 40}));
  EXPECT_EQ(all<OptimizerLost>(s.step(OptimizerUnfit{"other bytes"})).at(0).reason, "paris: other bytes");
}

TEST_F(Optimizer, OnceEveryByteIsHereItsSourceMayGo) {
  static_cast<void>(find());
  static_cast<void>(s.hear(2, offer()));
  static_cast<void>(s.step(TakeOptimizer{}));
  static_cast<void>(part(2, {0, 40}));
  EXPECT_TRUE(all<OptimizerLost>(s.hear(2, none("nothing was asked of it for 60 s"))).empty());
  EXPECT_TRUE(all<OptimizerLost>(s.step(Closed{LinkId{2}, unavailable("reset")})).empty());
  EXPECT_EQ(all<OptimizerLost>(s.step(OptimizerUnfit{"other bytes"})).size(), 1U) << "another may have one";
}

// Each source may take its time; those that serve what is no good do not have the joiner wait one after the other.
TEST_F(Optimizer, TheTryHasOneLimitForAllMembers) {
  static_cast<void>(find());
  static_cast<void>(s.hear(2, offer()));
  static_cast<void>(s.step(TakeOptimizer{}));
  static_cast<void>(part(2, {0, 40}));
  s.now += SiteHarness::defaults().round_timeout;
  EXPECT_EQ(all<OptimizerLost>(s.step(OptimizerUnfit{"other bytes"})).size(), 1U);
  const auto end = all<NoOptimizer>(find());
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(end[0].why.message(), "paris: other bytes");
}

TEST_F(Optimizer, MoreThanAnyOptimizerKeepsIsNotTaken) {
  static_cast<void>(find());
  EXPECT_TRUE(all<OptimizerOffered>(s.hear(2, offer(32 * 4096 + 1))).empty());
  static_cast<void>(s.step(EndOptimizer{}));
  static_cast<void>(find());
  EXPECT_EQ(all<OptimizerOffered>(s.hear(2, offer(32 * 4096))).size(), 1U);
}

TEST_F(Optimizer, BytesThatStopComingEndTheTry) {
  static_cast<void>(find());
  static_cast<void>(s.hear(2, offer(100'000)));
  s.now += seconds(100);  // the caller may think
  static_cast<void>(s.step(TakeOptimizer{}));
  static_cast<void>(s.hear(1, wire::Heartbeat{}));
  EXPECT_TRUE(all<OptimizerLost>(s.tick(seconds(59))).empty());
  EXPECT_THAT(all<OptimizerLost>(s.tick(seconds(1))).at(0).reason, HasSubstr("paris: nothing more arrived from it"));
}

TEST_F(Optimizer, ASiteThatAsksThisOneIsServed) {
  const auto serve = all<ServeOptimizer>(s.hear(2, wire::FetchOptimizer{3, {1, 2}}));
  EXPECT_EQ(serve.at(0).to, LinkId{2});
  EXPECT_EQ(serve.at(0).name, "paris");
  EXPECT_EQ(serve.at(0).asked, (wire::FetchOptimizer{3, {1, 2}}));
  EXPECT_FALSE(all<CloseLink>(s.hear(9, wire::FetchOptimizer{})).empty()) << "not before Hello";
}

TEST_F(Optimizer, AnswersNobodyAskedForAreIgnored) {
  EXPECT_TRUE(s.hear(2, offer()).empty());
  static_cast<void>(find());
  s.link_to(2, "lima", 3);
  EXPECT_TRUE(s.hear(3, offer()).empty());
  EXPECT_EQ(all<OptimizerOffered>(s.hear(2, offer())).size(), 1U);
  EXPECT_TRUE(s.hear(2, offer()).empty()) << "once";
}

}  // namespace
}  // namespace collab::protocol
