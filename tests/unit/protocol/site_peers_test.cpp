// Links between sites: how sites prove who they are, which one dials, which of two links stays, and which may fetch.
#include <gmock/gmock.h>

#include <set>

#include "core/protocol/formatting.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;

wire::Hello hello(std::uint32_t site, const std::string& name, const std::string& swarm = "swarm") {
  return {swarm, TermId{1}, SiteId{site}, name};
}

class Peers : public testing::Test {
 protected:
  Peers() { s.become(1, {"paris", "tokyo", "lima"}); }
  std::string hangup(std::uint64_t link, wire::Message message) {
    const auto hangups = all<CloseLink>(s.hear(link, std::move(message)));
    return hangups.empty() ? "" : hangups[0].why;
  }
  // lima (site 2) dials us on that link.
  void accept(std::uint64_t link) {
    EXPECT_EQ(sent<wire::Hello>(s.hear(link, hello(2, "lima"))).size(), 1U);
    static_cast<void>(s.hear(link, wire::Heartbeat{0, true}));
  }
  SiteHarness s;
};

TEST_F(Peers, ADiallerIsKnownByItsHello) {
  EXPECT_EQ(s.site.peer_of(LinkId{5}), std::nullopt);
  accept(5);
  EXPECT_EQ(s.site.peer_of(LinkId{5}), SiteId{2});
}

TEST_F(Peers, LinksOfStrangersAreClosedWithAReason) {
  EXPECT_THAT(hangup(5, wire::FetchAnchor{}), HasSubstr("FetchAnchor came before Hello"));
  EXPECT_THAT(hangup(6, hello(2, "lima", "other")),
              HasSubstr("belongs to the swarm \"other\", this site to \"swarm\""));
  EXPECT_THAT(hangup(7, hello(1, "tokyo")), HasSubstr("claims the number of this site"));
  static_cast<void>(s.step(PeerConnected{SiteId{0}, LinkId{8}}));
  EXPECT_THAT(hangup(8, hello(2, "lima")), HasSubstr("dialled paris, reached \"lima\" (site 2)"));
  EXPECT_EQ(all<CloseLink>(s.step(PeerConnected{SiteId{9}, LinkId{9}})).size(), 1U);
}

TEST_F(Peers, AHelloMayComeBeforeTheRosterThatListsIt) {
  EXPECT_TRUE(s.hear(5, hello(3, "oslo")).empty());
  EXPECT_EQ(s.site.peer_of(LinkId{5}), std::nullopt);
  const auto actions = s.hear(1, SiteHarness::roster({"paris", "tokyo", "lima", "oslo"}));
  EXPECT_EQ(sent<wire::Hello>(actions)[0].first, LinkId{5});
  EXPECT_EQ(s.site.peer_of(LinkId{5}), SiteId{3});
}

TEST_F(Peers, LinksOfSitesThatNoRosterListsAreBoundedAndPushNoMemberOut) {
  constexpr std::uint64_t kMost = 64;
  for (std::uint64_t i = 0; i < kMost; ++i) {
    s.now += seconds(0.01);
    EXPECT_EQ(hangup(100 + i, hello(10, "oslo")), "") << i;
  }
  const auto gone = all<CloseLink>(s.hear(99, hello(10, "oslo")));
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone[0].link, LinkId{100}) << "the oldest";
  EXPECT_THAT(gone[0].why, HasSubstr("too many links of unknown sites"));
  accept(5);
}

// ---- who proves it --------------------------------------------------------------------------------

TEST_F(Peers, AnImpostorLacksTheKey) {
  s.tells_keys = true;
  static_cast<void>(s.hear(1, wire::Keys{{{SiteId{2}, {7, 7}}}}));
  EXPECT_TRUE(sent<wire::Hello>(s.hear(5, hello(2, "lima"))).empty());
  EXPECT_EQ(s.site.peer_of(LinkId{5}), std::nullopt);
  wire::Hello proved = hello(2, "lima");
  proved.key = {7, 7};
  EXPECT_EQ(sent<wire::Hello>(s.hear(6, proved)).at(0).second.key, (Digest{7, 7}));
  EXPECT_EQ(s.site.peer_of(LinkId{6}), SiteId{2});
}

TEST_F(Peers, AHelloMayComeBeforeItsKey) {
  s.tells_keys = true;
  wire::Hello early = hello(2, "lima");
  early.key = {7, 7};
  EXPECT_TRUE(sent<wire::Hello>(s.hear(5, early)).empty());
  EXPECT_EQ(sent<wire::Hello>(s.hear(1, wire::Keys{{{SiteId{2}, {7, 7}}}})).size(), 1U);
  EXPECT_EQ(s.site.peer_of(LinkId{5}), SiteId{2});
}

TEST_F(Peers, TheDialledPeerProvesItsKeyToo) {
  s.tells_keys = true;
  static_cast<void>(s.hear(1, wire::Keys{{{SiteId{0}, {7, 7}}}}));
  EXPECT_EQ(sent<wire::Hello>(s.step(PeerConnected{SiteId{0}, LinkId{8}})).at(0).second.key, (Digest{7, 7}));
  EXPECT_THAT(hangup(8, hello(0, "paris")), HasSubstr("does not prove that it is that site"));
}

TEST_F(Peers, APeerWithoutAKnownKeyIsRefused) {
  s.tells_keys = true;
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "tokyo", "lima", "oslo"})));
  static_cast<void>(s.step(PeerConnected{SiteId{3}, LinkId{8}}));
  EXPECT_TRUE(sent<wire::Hello>(s.hear(9, hello(3, "oslo"))).empty());
  EXPECT_THAT(hangup(8, hello(3, "oslo")), HasSubstr("does not prove"));
}

TEST_F(Peers, ANewKeyIsSentToPeersThatMayNotKnowTheOldOne) {
  s.tells_keys = true;
  static_cast<void>(s.step(PeerConnected{SiteId{0}, LinkId{8}}));
  const auto again = sent<wire::Hello>(s.hear(1, wire::Keys{{{SiteId{0}, {8, 8}}}}));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].second.key, (Digest{8, 8}));
}

TEST_F(Peers, AHelloIsNotWaitedOnForever) {
  static_cast<void>(s.hear(5, hello(3, "oslo")));
  static_cast<void>(s.hear(1, wire::Heartbeat{}));
  const auto hangups = all<CloseLink>(s.pass(seconds(21)));
  ASSERT_EQ(hangups.size(), 1U);
  EXPECT_THAT(hangups[0].why, HasSubstr("does not list \"oslo\""));
}

TEST_F(Peers, AMemberThatIsGoneLosesItsLinks) {
  accept(5);
  const auto actions = s.hear(1, SiteHarness::roster({"paris", "tokyo"}));
  EXPECT_EQ(all<CloseLink>(actions)[0].link, LinkId{5});
  EXPECT_EQ(s.site.peer_of(LinkId{5}), std::nullopt);
}

TEST_F(Peers, TheNewerOfTwoLinksOfOneDiallerStays) {
  accept(5);
  static_cast<void>(s.hear(6, hello(2, "lima")));
  EXPECT_EQ(all<CloseLink>(s.hear(6, wire::Heartbeat{0, true}))[0].link, LinkId{5});
  EXPECT_EQ(s.site.peer_of(LinkId{6}), SiteId{2});
}

TEST_F(Peers, TheLinkOfTheHigherOfTwoDiallersStays) {
  accept(5);
  EXPECT_EQ(all<CloseLink>(s.step(PeerConnected{SiteId{2}, LinkId{6}})).at(0).link, LinkId{6});
  EXPECT_EQ(s.site.peer_of(LinkId{5}), SiteId{2});
}

TEST_F(Peers, TheAnchorIsSentToMembersThatAsk) {
  accept(5);
  const wire::FetchAnchor part{RunId{7}, RoundId{0}, wire::ChunkKind::kOuter, {5, 9}};
  const auto send = all<SendAnchor>(s.hear(5, part)).at(0);
  EXPECT_EQ(send.to, LinkId{5});
  EXPECT_EQ(send.part, part);
  EXPECT_EQ(sent<wire::AnchorMoved>(s.hear(5, wire::FetchAnchor{RunId{7}, RoundId{3}, {}, {0, 1}})).at(0).second,
            (wire::AnchorMoved{RunId{7}, RoundId{0}}));
}

TEST_F(Peers, MessagesNoSiteSendsAnotherAreIgnored) {
  accept(5);
  for (const wire::Message& message : std::vector<wire::Message>{
           wire::Commit{}, wire::StartAttempt{}, wire::Ready{}, wire::Refuse{}, wire::Welcome{}, wire::StatusQuery{}}) {
    EXPECT_THAT(notes(s.hear(5, message)), HasSubstr("a message that sites never send each other"));
  }
  EXPECT_TRUE(s.hear(5, wire::Chunk{}).empty());
  EXPECT_TRUE(s.hear(5, hello(2, "lima")).empty());
}

TEST(PeersEarly, AFetchBeforeOurAnchorIsInPlaceIsAnsweredOnceItIs) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{0}, 1000, 60000}));
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "tokyo"})));
  static_cast<void>(s.hear(5, hello(1, "tokyo")));
  EXPECT_TRUE(s.hear(5, wire::FetchAnchor{RunId{7}, RoundId{0}, {}, {0, 1}}).empty());
  EXPECT_TRUE(s.hear(5, wire::FetchAnchor{RunId{7}, RoundId{0}, {}, {1, 2}}).empty());
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, kRight}));
  EXPECT_EQ(all<SendAnchor>(s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight})).size(), 2U);
}

TEST(PeersEarly, EarlyFetchesAreBounded) {
  SiteHarness s;
  static_cast<void>(s.step(Begin{join_of("paris")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{0}, 1000, 60000}));
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "tokyo"})));
  static_cast<void>(s.hear(5, hello(1, "tokyo")));
  SiteHarness::Actions last;
  for (std::uint64_t i = 0; i < 300 && last.empty(); ++i) {
    last = s.hear(5, wire::FetchAnchor{RunId{7}, RoundId{0}, {}, {i, i + 1}});
  }
  EXPECT_EQ(all<CloseLink>(last).at(0).link, LinkId{5});
}

TEST_F(Peers, TheAnchorIsGivenWithoutACoordinatorToo) {
  accept(5);
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  EXPECT_EQ(all<SendAnchor>(s.hear(5, wire::FetchAnchor{RunId{7}, RoundId{0}, {}, {0, 1}})).size(), 1U);
  // It may get the one that is asked for before it is a member again.
  EXPECT_TRUE(s.hear(5, wire::FetchAnchor{RunId{7}, RoundId{1}, {}, {0, 1}}).empty());
}

TEST(PeersHidden, ASiteThatCannotBeDialledDialsAllOthers) {
  SiteHarness s;
  wire::Join join = join_of("tokyo");
  join.address.clear();
  static_cast<void>(s.step(Begin{join}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  const auto dials = all<DialPeer>(s.hear(1, SiteHarness::roster({"paris", "tokyo", "lima"}, "tokyo")));
  ASSERT_EQ(dials.size(), 2U);
  EXPECT_EQ(dials[1].site, SiteId{2});
}

// Where nobody answers a dial is over after a while only.
TEST(PeersHidden, ASiteThatCannotBeDialledDialsAFewAtATime) {
  constexpr std::size_t kSites = 150;
  SiteHarness s;
  wire::Join join = join_of("site0");
  join.address.clear();
  static_cast<void>(s.step(Begin{join}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{0}, 1000, 60000}));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kSites; ++i) names.push_back("site" + std::to_string(i));
  std::set<SiteId> dialled;
  auto dials = all<DialPeer>(s.hear(1, SiteHarness::roster(names, "site0")));
  EXPECT_EQ(dials.size(), 64U);
  for (int turn = 0; turn < 3; ++turn) {
    for (const DialPeer& dial : dials) {
      dialled.insert(dial.site);
      static_cast<void>(s.step(DialFailed{dial.site, unavailable("nobody answers")}));
    }
    dials = all<DialPeer>(s.tick(seconds(0.5)));
    EXPECT_LE(dials.size(), 64U);
  }
  EXPECT_EQ(dialled.size(), kSites - 1) << "each once before one is dialled again";
}

TEST(PeersHidden, TwoSitesThatCannotBeDialledFailWithTheReason) {
  SiteHarness s;
  wire::Join join = join_of("tokyo");
  join.address.clear();
  join.offer.digest = kWrong;
  static_cast<void>(s.step(Begin{join}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "tokyo"}, "paris")));
  const auto failed = all<Failed>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, kRight}));
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_THAT(failed[0].why.message(), HasSubstr("neither it nor this site can be dialled"));
}

TEST(SitePeers, ASiteThatLearnsItCannotBeDialledDialsTheOthers) {
  SiteHarness s;
  s.become(1, {"paris", "tokyo", "lima"});
  s.link_to(0, "paris", 2);
  const auto actions = s.hear(1, wire::Notice{std::string(kDialOut), "other sites cannot dial this site"});
  EXPECT_THAT(notes(actions), testing::HasSubstr("other sites cannot dial this site"));
  ASSERT_EQ(all<DialPeer>(actions).size(), 1U);
  EXPECT_EQ(all<DialPeer>(actions)[0].site, SiteId{2});
  EXPECT_TRUE(all<CloseLink>(actions).empty());
}

TEST(SitePeers, ADialThatSucceedsLateDoesNotReplaceALinkInUse) {
  SiteHarness s;
  s.become(1, {"paris", "tokyo"});
  static_cast<void>(s.step(Trigger{8, 4}));
  EXPECT_EQ(all<DialPeer>(s.hear(1, SiteHarness::start(1, 1, 2))).size(), 1U);
  static_cast<void>(s.hear(7, wire::Hello{"swarm", TermId{1}, SiteId{0}, "paris"}));  // it dialled, too
  ASSERT_EQ(all<StartExchange>(s.hear(7, wire::Heartbeat{0, true})).size(), 1U);
  const auto late = s.step(PeerConnected{SiteId{0}, LinkId{8}});
  ASSERT_EQ(all<CloseLink>(late).size(), 1U);
  EXPECT_EQ(all<CloseLink>(late)[0].link, LinkId{8});
  EXPECT_TRUE(sent<wire::PeerUnreachable>(late).empty());
}

}  // namespace
}  // namespace collab::protocol
