// A site that cannot be dialled, and that reaches no holder of the anchor.
#include <gmock/gmock.h>

#include "core/protocol/formatting.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::Not;

class SiteReachability : public testing::Test {
 protected:
  // tokyo, which is to take the anchor from paris; it names an address, and so does paris.
  void join() {
    s.join_with_another(1, {"paris", "tokyo"});
    EXPECT_EQ(all<DialPeer>(s.hear(1, install({SiteId{0}}))).size(), 1U);
  }
  static wire::InstallAnchor install(std::vector<SiteId> sources) {
    return {TermId{1}, RunId{7}, RoundId{0}, std::move(sources), kRight};
  }
  void told() {
    static_cast<void>(s.hear(1, wire::Notice{std::string(kDialOut), "other sites cannot dial this site"}));
  }
  // With a coordinator that lives, and dials that fail.
  SiteHarness::Actions wait(double time) {
    SiteHarness::Actions actions;
    const auto collect = [&](SiteHarness::Actions more) {
      for (auto& action : more) {
        if (const auto* dial = std::get_if<DialPeer>(&action)) failed.push_back(dial->site);
        actions.push_back(std::move(action));
      }
    };
    for (const TimePoint end = s.now + seconds(time); s.now < end;) {
      collect(s.pass(seconds(1)));
      static_cast<void>(s.hear(1, wire::Heartbeat{1, false}));
      for (const SiteId site : std::exchange(failed, {})) collect(s.step(DialFailed{site, unavailable("timed out")}));
    }
    return actions;
  }
  static std::string failure(const SiteHarness::Actions& actions) {
    const auto failures = all<Failed>(actions);
    return failures.empty() ? "" : failures[0].why.message();
  }
  // The same roster with a third that is on its way to the anchor.
  static wire::Roster with_helper() {
    wire::Roster roster = SiteHarness::roster({"paris", "tokyo", "helper"});
    roster.members[2].state = wire::MemberState::kJoining;
    return roster;
  }

  SiteHarness s;
  std::vector<SiteId> failed{};
};

TEST_F(SiteReachability, AJoinerWithoutALinkToTheAnchorFailsAfterTheGrace) {
  join();
  told();
  EXPECT_EQ(failure(wait(58)), "");
  EXPECT_THAT(s.site.waiting_for(s.now),
              HasSubstr("from paris (no link with it so far, and other sites cannot dial this site"));
  EXPECT_THAT(s.site.waiting_for(s.now), HasSubstr("`collab helper`"));
  const std::string why = failure(wait(3));
  EXPECT_THAT(why,
              HasSubstr("the anchor is at paris, and neither it nor this site can be dialled (no link within 60 s"));
  EXPECT_THAT(why, HasSubstr("last: timed out"));
  EXPECT_THAT(why, HasSubstr("run `collab helper` on a machine that both reach"));
}

TEST_F(SiteReachability, ASiteThatCanBeDialledWaitsOn) {
  join();
  EXPECT_EQ(failure(wait(100)), "");
  EXPECT_THAT(s.site.waiting_for(s.now), Not(HasSubstr("helper")));
  told();
  EXPECT_THAT(failure(wait(2)), HasSubstr("collab helper")) << "it has tried for longer than the grace";
}

TEST_F(SiteReachability, TwoSitesThatReachEachOtherAfterAllContinue) {
  join();
  told();
  static_cast<void>(wait(30));
  s.link_to(0, "paris", 2);
  EXPECT_EQ(failure(wait(200)), "");
  EXPECT_THAT(s.site.waiting_for(s.now), Not(HasSubstr("helper")));
  static_cast<void>(s.step(Closed{LinkId{2}, unavailable("reset")}));
  EXPECT_EQ(failure(wait(50)), "") << "it has the grace to come back";
  EXPECT_THAT(failure(wait(12)), HasSubstr("collab helper"));
}

TEST_F(SiteReachability, AHelperOnItsWayIsWaitedFor) {
  join();
  told();
  static_cast<void>(wait(50));
  static_cast<void>(s.hear(1, with_helper()));
  s.link_to(2, "helper", 3);
  EXPECT_EQ(failure(wait(100)), "");
  const auto added = all<AddAnchorSource>(s.hear(1, install({SiteId{0}, SiteId{2}})));
  ASSERT_EQ(added.size(), 1U);
  EXPECT_EQ(added[0].site, SiteId{2});
  EXPECT_EQ(failure(wait(100)), "");
}

TEST_F(SiteReachability, AHelperThatGoesAgainIsNotWaitedFor) {
  join();
  told();
  static_cast<void>(s.hear(1, with_helper()));
  s.link_to(2, "helper", 3);
  static_cast<void>(wait(100));
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "tokyo"})));
  EXPECT_EQ(failure(wait(58)), "");
  EXPECT_THAT(failure(wait(5)), HasSubstr("collab helper"));
}

TEST_F(SiteReachability, AnotherSourceIsTriedForAsLong) {
  join();
  told();
  static_cast<void>(wait(50));
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "tokyo", "helper"})));
  static_cast<void>(s.hear(1, install({SiteId{0}, SiteId{2}})));
  EXPECT_EQ(failure(wait(55)), "");
  EXPECT_THAT(failure(wait(10)), HasSubstr("the anchor is at paris, helper"));
}

// A site that has joined once trains on.
TEST_F(SiteReachability, AMemberThatComesBackToNoWayTrainsOn) {
  s.become(1, {"paris", "tokyo"});
  told();
  static_cast<void>(s.step(Trigger{8, 4}));
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{3}, {SiteId{0}}, kWrong}));
  const auto actions = wait(62);
  EXPECT_EQ(failure(actions), "");
  ASSERT_EQ(all<RoundSkipped>(actions).size(), 1U);
  EXPECT_THAT(all<RoundSkipped>(actions)[0].reason, HasSubstr("collab helper"));
  EXPECT_EQ(all<StopReceiving>(actions).size(), 1U);
}

TEST_F(SiteReachability, TheReportOfAFailedLinkSuggestsTheHelper) {
  for (const bool hidden : {false, true}) {
    SiteHarness t;
    t.become(1, {"paris", "tokyo"});
    if (hidden) static_cast<void>(t.hear(1, wire::Notice{std::string(kDialOut), "other sites cannot dial this site"}));
    static_cast<void>(t.step(Trigger{8, 4}));
    static_cast<void>(t.hear(1, SiteHarness::start(1, 1, 2)));
    const auto unreachable = sent<wire::PeerUnreachable>(t.pass(seconds(21)));
    ASSERT_EQ(unreachable.size(), 1U);
    EXPECT_THAT(unreachable[0].second.reason, HasSubstr("no link within 20 s"));
    EXPECT_EQ(unreachable[0].second.reason.find("no site can dial tokyo: run `collab helper`") != std::string::npos,
              hidden);
  }
}

}  // namespace
}  // namespace collab::protocol
