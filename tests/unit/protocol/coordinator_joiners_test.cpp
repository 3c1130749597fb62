// Sites that join and take nothing: how long rounds wait for them, and what becomes of them.
#include <gmock/gmock.h>

#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {

struct Inside {
  // As if so many had joined as there may be: each join is told to all others, and takes its time.
  static void fill(Coordinator& coordinator) {
    Members& members = coordinator.parts_->membership.members();
    const Member& m = members.begin()->second;
    for (std::uint32_t id = 2; members.size() < wire::kMaxSites; ++id) {
      members.emplace(SiteId{id}, Member{SiteId{id}, m.link, "site" + std::to_string(id), m.address, m.helper, m.early,
                                         m.ticket, m.join, m.contact, m.anchor, m.round});
    }
  }
};

namespace {

using testing::HasSubstr;
using H = CoordinatorHarness;

class CoordinatorJoiners : public testing::Test {
 protected:
  CoordinatorJoiners() {
    c.gather({"paris", "tokyo"});
    static_cast<void>(c.hear(1, H::ready(1)));
  }
  // lima on link 3, which is told the anchor, and the members are ready.
  void join_and_wait(std::uint64_t link = 3, const std::string& name = "lima") {
    ASSERT_EQ(sent<wire::InstallAnchor>(c.hear(link, join_of(name, 2))).size(), 1U);
    ASSERT_TRUE(sent<wire::StartAttempt>(c.hear(2, H::ready(1))).empty()) << "the anchor does not move under it";
  }
  // With heartbeats of all and, of the joiner, so many bytes more with each.
  H::Actions pass(Duration time, std::uint64_t bytes) {
    H::Actions all_actions;
    for (const TimePoint end = c.now + time; c.now < end;) {
      progress += bytes;
      for (auto& action : c.hear(3, wire::Heartbeat{1, false, progress})) all_actions.push_back(std::move(action));
      for (auto& action : c.pass(seconds(1), {1, 2})) all_actions.push_back(std::move(action));
    }
    return all_actions;
  }
  std::uint64_t progress = 1000;
  H c;
};

TEST_F(CoordinatorJoiners, ARoundWaitsForAJoinerThatMakesProgress) {
  join_and_wait();
  EXPECT_TRUE(sent<wire::StartAttempt>(pass(seconds(300), 1)).empty());
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight})).size(), 2U);
}

TEST_F(CoordinatorJoiners, ARoundWaitsAGraceAtMostForAJoinerWithoutProgress) {
  join_and_wait();
  EXPECT_TRUE(sent<wire::StartAttempt>(pass(seconds(58), 0)).empty());
  const auto actions = pass(seconds(5), 0);
  const auto starts = sent<wire::StartAttempt>(actions);
  ASSERT_EQ(starts.size(), 2U) << "it goes on without it";
  EXPECT_THAT(notes(actions), HasSubstr("round 1 goes on without lima, which has not taken the anchor in time"));
  EXPECT_TRUE(std::ranges::none_of(starts[0].second.voters, [](const wire::Voter& v) { return v.name == "lima"; }));
}

TEST_F(CoordinatorJoiners, AJoinerThatGetsNothingForAGraceIsDroppedAndMayRejoin) {
  join_and_wait();
  const auto actions = pass(seconds(65), 0);
  EXPECT_THAT(notes(actions), HasSubstr("no part of the anchor has reached it for 60 s"));
  EXPECT_TRUE(sent<wire::Refuse>(actions).empty());
  EXPECT_EQ(sent<wire::Welcome>(c.hear(4, join_of("lima", 2))).size(), 1U);
}

TEST_F(CoordinatorJoiners, EachJoinerThatCameInVainHalvesTheTimeThatRoundsWaitForTheNext) {
  Duration waited{0};
  for (std::uint64_t i = 0; i < 12; ++i) {
    const std::uint64_t round = i + 1;
    static_cast<void>(c.hear(1, H::ready(round)));
    static_cast<void>(c.hear(10 + i, join_of("stranger" + std::to_string(i), 2)));
    const TimePoint begun = c.now;
    auto starts = sent<wire::StartAttempt>(c.hear(2, H::ready(round)));
    for (int s = 0; starts.empty() && s < 200; ++s)
      starts = sent<wire::StartAttempt>(c.pass(seconds(0.5), {1, 2, 10 + i}));
    ASSERT_FALSE(starts.empty()) << round;
    waited += c.now - begun;
    const wire::StartAttempt start = starts.front().second;
    for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(start)));
    for (const std::uint64_t link : {1, 2}) {
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{round}, kRight}));
    }
    static_cast<void>(c.close(10 + i));
  }
  EXPECT_LT(waited, seconds(2 * 60 + 12 * 4)) << "two graces, and three heartbeats each";
}

// Its own time begins when all the others have come.
TEST_F(CoordinatorJoiners, AJoinerToldOfALateSourceIsWaitedForToo) {
  join_and_wait();
  EXPECT_TRUE(sent<wire::StartAttempt>(pass(seconds(300), 1)).empty());
  static_cast<void>(c.hear(4, join_of("oslo", 2)));
  static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(3, H::ready(1))).empty());
  EXPECT_TRUE(sent<wire::StartAttempt>(c.pass(seconds(50), {1, 2, 3, 4})).empty());
  EXPECT_FALSE(sent<wire::StartAttempt>(c.pass(seconds(15), {1, 2, 3, 4})).empty());
}

// Each goes before its own time is over, and another is there by then.
TEST_F(CoordinatorJoiners, JoinersThatComeAndGoHoldARoundForAGraceAtMost) {
  join_and_wait(10, "stranger0");
  std::vector<std::pair<LinkId, wire::StartAttempt>> starts;
  for (std::uint64_t i = 1; starts.empty() && i < 200; ++i) {
    static_cast<void>(c.hear(10 + i, join_of("stranger" + std::to_string(i), 2)));
    starts = sent<wire::StartAttempt>(c.close(9 + i));
    if (starts.empty()) starts = sent<wire::StartAttempt>(c.pass(seconds(1), {1, 2, 10 + i}));
  }
  EXPECT_FALSE(starts.empty());
  EXPECT_LE(c.now, TimePoint{} + seconds(62));
}

TEST_F(CoordinatorJoiners, AJoinerWithAnEarlierAnchorIsGivenTheNewOne) {
  join_and_wait();
  const auto starts = sent<wire::StartAttempt>(pass(seconds(61), 0));
  ASSERT_EQ(starts.size(), 2U);
  for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, H::done(starts[0].second)));
  const auto installs = sent<wire::InstallAnchor>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].first, LinkId{3});
  EXPECT_EQ(installs[0].second.round, RoundId{1});
}

TEST_F(CoordinatorJoiners, AHelperThatTakesNothingHoldsNoRound) {
  wire::Join helper = join_of("helper");
  helper.helper = true;
  ASSERT_EQ(sent<wire::InstallAnchor>(c.hear(3, helper)).size(), 1U);
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(2, H::ready(1))).size(), 2U);
}

// The next leader asks the members for the anchor they agreed on: a site that does not hold it yet is no member.
TEST_F(CoordinatorJoiners, AJoinerTakingTheAnchorIsNotInTheNextMembership) {
  wire::Join helper = join_of("helper");
  helper.helper = true;
  ASSERT_EQ(sent<wire::InstallAnchor>(c.hear(3, helper)).size(), 1U);
  const auto starts = sent<wire::StartAttempt>(c.hear(2, H::ready(1)));
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].second.voters, voters_of({"paris", "tokyo"}));
}

TEST_F(CoordinatorJoiners, AHelperThatIsNotReadyDelaysARoundByThreeHeartbeats) {
  wire::Join helper = join_of("helper");
  helper.helper = true;
  static_cast<void>(c.hear(3, helper));
  static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  ASSERT_TRUE(sent<wire::StartAttempt>(c.hear(2, H::ready(1))).empty());
  EXPECT_EQ(sent<wire::StartAttempt>(c.pass(seconds(4), {1, 2, 3})).size(), 2U);
}

// ---- who is who ------------------------------------------------------------------------------------

TEST_F(CoordinatorJoiners, AMembersNameAndAddressDoNotTakeItsPlace) {
  wire::Join thief = join_of("tokyo", 2);
  thief.process = 99;
  EXPECT_TRUE(sent<wire::Welcome>(c.hear(9, thief)).empty());
  const auto heard = c.hear(2, wire::Heartbeat{});
  EXPECT_THAT(sent<wire::Refuse>(heard).at(0).second.reason, HasSubstr("[join.name-taken]"));
}

TEST_F(CoordinatorJoiners, ABoundedNumberMayWaitForATakenName) {
  const auto thief = [](std::uint64_t process) {
    wire::Join join = join_of("tokyo", 2);
    join.process = process;
    return join;
  };
  for (std::uint64_t i = 0; i < kMaxClaims; ++i) {
    EXPECT_TRUE(sent<wire::Refuse>(c.hear(100 + i, thief(i + 1))).empty()) << i;
  }
  const auto refused = sent<wire::Refuse>(c.hear(99, thief(1000)));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("[join.too-many-claims]"));
}

TEST_F(CoordinatorJoiners, NoMoreSitesAreLetInThanThereMayBe) {
  Inside::fill(c.coordinator);
  const auto refused = sent<wire::Refuse>(c.hear(3, join_of("lima", 2)));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("it has 4096 sites, which is the most that it can have [join.full]"));
}

TEST_F(CoordinatorJoiners, TheSameProcessIsBackAtOnce) {
  EXPECT_EQ(sent<wire::Welcome>(c.hear(9, join_of("tokyo", 2))).size(), 1U);
}

TEST_F(CoordinatorJoiners, NameAndAddressDoNotTakeASitesPlaceInAnElectionEither) {
  H waiting;
  const std::vector<wire::Voter> voters = voters_of({"paris", "tokyo", "lima"});
  static_cast<void>(waiting.hear(1, member_of("paris", {RunId{7}, RoundId{3}, kRight}, voters)));
  wire::Join thief = member_of("paris", {RunId{7}, RoundId{3}, kRight}, voters);
  thief.process = 99;
  EXPECT_TRUE(all<CloseLink>(waiting.hear(2, thief)).empty()) << "paris stays";
  const auto heard = waiting.hear(1, wire::Inquire{"swarm"});
  EXPECT_EQ(sent<wire::Refuse>(heard).size(), 1U);
}

TEST_F(CoordinatorJoiners, TwoMembersAreToldTheSameKeyAndNobodyElseIs) {
  const auto actions = c.hear(3, join_of("lima", 2));
  std::map<std::uint64_t, std::map<std::uint32_t, Digest>> told;
  for (const auto& [link, keys] : sent<wire::Keys>(actions)) {
    for (const wire::Key& each : keys.keys) told[link.value][each.site.value] = each.key;
  }
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[3][0], told[1][2]);
  EXPECT_EQ(told[3][1], told[2][2]);
  EXPECT_NE(told[3][0], told[3][1]);
  const auto again = sent<wire::Keys>(c.hear(4, join_of("lima", 2)));
  EXPECT_NE(again.at(0).second.keys.at(0).key, told[1][2]) << "another admission, another key";
}

// A bit has flipped where most say so: who was told to take the anchor from before would find it nowhere.
TEST(CoordinatorHelpers, AHelperTakingTheAnchorIsToldWhenAnotherOneIsRight) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  wire::Join helper = join_of("helper", 2);
  helper.helper = true;
  helper.offer = {};
  const auto installs = sent<wire::InstallAnchor>(c.hear(3, helper));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.digest, kRight);
  static_cast<void>(c.hear(1, CoordinatorHarness::ready(1, 1, kWrong)));
  std::map<LinkId, wire::InstallAnchor> told;
  for (const auto& [to, install] : sent<wire::InstallAnchor>(c.hear(2, CoordinatorHarness::ready(1, 1, kRight))))
    told[to] = install;
  ASSERT_EQ(told.count(LinkId{3}), 1U);
  EXPECT_EQ(told[LinkId{3}].digest, kWrong) << "of two, the lower site's";
  EXPECT_THAT(told[LinkId{3}].sources, testing::ElementsAre(SiteId{0}));
}

// Of three that have applied a commit, one reports a wrong digest first, and the others were away by then.
class FirstReportIsWrong : public testing::Test {
 protected:
  FirstReportIsWrong() {
    c.gather({"paris", "tokyo", "lima"});
    const wire::StartAttempt start = c.start(1, 3);
    for (const std::uint64_t link : {1, 2, 3}) static_cast<void>(c.hear(link, H::done(start)));
    static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong, acceptor_of("lima")}));
    for (const std::uint64_t link : {1, 2}) static_cast<void>(c.close(link));
  }
  std::vector<Digest> told(std::uint64_t link, const std::string& name) {
    wire::Join join = join_of(name, 3);
    join.offer = {RunId{7}, RoundId{1}, kRight};
    std::vector<Digest> digests;
    for (const auto& [to, install] : sent<wire::InstallAnchor>(c.hear(link, join))) digests.push_back(install.digest);
    return digests;
  }
  H c;
};

TEST_F(FirstReportIsWrong, ReportsOfMoreThanHalfOfTheMembershipOutweighIt) {
  EXPECT_THAT(told(4, "paris"), testing::ElementsAre(kWrong)) << "one word against another";
  EXPECT_THAT(told(5, "tokyo"), testing::ElementsAre(kRight, kRight)) << "both keep what they hold";
}

TEST_F(FirstReportIsWrong, TheOnlySourceIsAskedAgainWhenItsJoinerHasGone) {
  EXPECT_THAT(told(4, "paris"), testing::ElementsAre(kWrong));
  const auto asked = sent<wire::InstallAnchor>(c.close(4));
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].first, LinkId{3});
  EXPECT_THAT(asked[0].second.sources, testing::ElementsAre(SiteId{2})) << "lima keeps what it holds, and says so";
  static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight, acceptor_of("lima")}));
  EXPECT_THAT(told(5, "paris"), testing::ElementsAre(kRight));
}

TEST_F(FirstReportIsWrong, AReturningJoinerMakesTheSourceBeAskedOnceAGraceOnly) {
  std::size_t asked = 0;
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(told(4, "paris"));
    asked += sent<wire::InstallAnchor>(c.close(4)).size();
    static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong, acceptor_of("lima")}));
  }
  EXPECT_EQ(asked, 1U);
}

TEST_F(FirstReportIsWrong, ReportsOfStrangersDoNotOutweighIt) {
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_THAT(told(4 + i, "stranger" + std::to_string(i)), testing::ElementsAre(kWrong)) << i;
  }
}

}  // namespace
}  // namespace collab::protocol
