// Heartbeats, suspicion, removal, leaving, garbage, status.
#include <gmock/gmock.h>

#include <bit>

#include "core/wire/encoding.h"
#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(CoordinatorMembers, OnlyTheSitesOfTheAgreementAreVoters) {
  CoordinatorHarness h;
  EXPECT_FALSE(h.coordinator.is_voter("paris"));
  h.gather({"paris", "tokyo"});
  static_cast<void>(h.come(3, join_of("guest")));
  EXPECT_TRUE(h.coordinator.is_voter("paris"));
  EXPECT_TRUE(h.coordinator.is_voter("tokyo"));
  EXPECT_FALSE(h.coordinator.is_voter("guest"));
  static_cast<void>(h.close(2));
  EXPECT_TRUE(h.coordinator.is_voter("tokyo")) << "while it is away";
}

TEST(CoordinatorMembers, HeartbeatsGoToAll) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  EXPECT_EQ(sent<wire::Heartbeat>(c.pass(seconds(3), {1, 2})).size(), 6U);
}

TEST(CoordinatorMembers, SilenceIsSuspectedThenRemoved) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  EXPECT_THAT(notes(c.pass(seconds(4), {1})), Not(HasSubstr("suspect")));
  const auto suspected = c.pass(seconds(2), {1});
  EXPECT_THAT(notes(suspected), HasSubstr("[suspect] tokyo has not been heard from for"));
  EXPECT_EQ(sent<wire::Roster>(suspected)[0].second.members[1].state, wire::MemberState::kSuspect);
  EXPECT_THAT(notes(c.hear(2, wire::Heartbeat{1, false})), HasSubstr("[resume] tokyo is heard from again"));
  const auto removed = c.pass(seconds(61), {1});
  EXPECT_THAT(notes(removed), HasSubstr("[leave] tokyo is no longer a member: silent for longer than 60 s"));
  EXPECT_EQ(all<CloseLink>(removed)[0].link, LinkId{2});
  EXPECT_EQ(c.coordinator.members(), 1U);
}

TEST(CoordinatorMembers, ASiteThatComesAndGoesFillsNoLineWithRosters) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo", "lima"});
  const wire::StartAttempt start = c.start(1, 3);
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(c.hear(link, CoordinatorHarness::done(start)));
  const wire::AnchorInstalled first{RunId{7}, RoundId{1}, kRight};
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(c.hear(link, first));
  static_cast<void>(c.pass(seconds(2), {1, 2, 3}));
  std::size_t rosters = 0;
  for (int i = 0; i < 1000; ++i) {
    rosters += sent<wire::Roster>(c.hear(3, CoordinatorHarness::ready(1))).size();
    rosters += sent<wire::Roster>(c.hear(3, first)).size();
  }
  EXPECT_GT(rosters, 0U);
  EXPECT_LE(rosters, 3 * kMostRosters);
  EXPECT_EQ(sent<wire::Roster>(c.pass(seconds(1), {1, 2, 3})).size(), 3U) << "how it ended they are told";
}

TEST(CoordinatorMembers, ACoordinatorThatSleptBlamesNobody) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  c.now += seconds(600);
  EXPECT_THAT(notes(c.step(Tick{})), Not(HasSubstr("leave")));
  EXPECT_EQ(c.coordinator.members(), 2U);
}

TEST(CoordinatorMembers, AClosedLinkIsALeave) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  const auto actions = c.close(2);
  EXPECT_THAT(notes(actions), HasSubstr("[leave] tokyo is no longer a member: its link was lost: reset"));
  ASSERT_EQ(sent<wire::Roster>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::Roster>(actions)[0].second.members.size(), 1U);
  EXPECT_TRUE(c.close(99).empty());
}

std::vector<std::string> sites(std::uint32_t count) {
  std::vector<std::string> names;
  for (std::uint32_t i = 1; i <= count; ++i) names.push_back("site" + std::to_string(i));
  return names;
}

TEST(CoordinatorMembers, UpToThirtyTwoHearOfEachChangeAtOnce) {
  CoordinatorHarness c;
  c.gather(sites(31));
  const auto rosters = sent<wire::Roster>(c.come(32, join_of("lima")));
  ASSERT_EQ(rosters.size(), 32U);
  EXPECT_EQ(rosters[0].second.members.size(), 32U);
}

TEST(CoordinatorMembers, AboveThirtyTwoChangesWaitForTheNextHeartbeat) {
  CoordinatorHarness c;
  c.gather(sites(32));
  static_cast<void>(c.pass(seconds(1)));
  for (const auto& [link, name] : {std::pair{33U, "lima"}, std::pair{34U, "oslo"}}) {
    const auto at_once = sent<wire::Roster>(c.come(link, join_of(name)));
    ASSERT_EQ(at_once.size(), 1U) << "the joiner's alone: it has to know whom to take the anchor from";
    EXPECT_EQ(at_once[0].first, LinkId{link});
  }
  const auto rosters = sent<wire::Roster>(c.pass(seconds(1)));
  ASSERT_EQ(rosters.size(), 34U) << "one to each member for both changes";
  EXPECT_EQ(rosters[0].second.members.size(), 34U);
  EXPECT_TRUE(sent<wire::Roster>(c.pass(seconds(1))).empty()) << "nothing has changed since";
}

TEST(CoordinatorMembers, AboveThirtyTwoAnAttemptBringsTheRosterThatWaits) {
  CoordinatorHarness c;
  c.gather(sites(34));
  static_cast<void>(c.pass(seconds(1)));
  for (std::uint64_t link = 1; link <= 33; ++link) static_cast<void>(c.hear(link, CoordinatorHarness::ready(1)));
  const auto actions = c.close(34);  // the one that was waited for: the attempt starts without it
  const auto rosters = sent<wire::Roster>(actions);
  ASSERT_EQ(sent<wire::StartAttempt>(actions).size(), 33U);
  ASSERT_EQ(rosters.size(), 33U);
  EXPECT_EQ(rosters[0].second.members.size(), 33U);
}

TEST(CoordinatorMembers, LeavingIsAcknowledged) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  const auto actions = c.hear(2, wire::Leave{"trained to the end"});
  EXPECT_EQ(sent<wire::LeaveAck>(actions)[0].first, LinkId{2});
  EXPECT_EQ(all<CloseLink>(actions)[0].link, LinkId{2});
  EXPECT_THAT(notes(actions), HasSubstr("left: trained to the end"));
  EXPECT_EQ(c.coordinator.member_names(), (std::vector<std::string>{"paris"}));
}

TEST(CoordinatorMembers, TheOthersAreToldWhoHasLeft) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo", "lima"});
  const auto member_left = sent<wire::MemberLeft>(c.hear(2, wire::Leave{"done"}));
  ASSERT_EQ(member_left.size(), 2U);
  EXPECT_EQ(member_left[0].second, (wire::MemberLeft{TermId{1}, "tokyo", acceptor_of("tokyo")}));
  EXPECT_TRUE(sent<wire::MemberLeft>(c.close(3)).empty()) << "who is lost has not left";
}

TEST(CoordinatorMembers, ASiteThatMissedACommitIsToldWhoHasLeftSince) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo", "lima"});
  const wire::StartAttempt start = c.start(1, 3);
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(c.hear(link, CoordinatorHarness::done(start)));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  static_cast<void>(c.close(2));
  static_cast<void>(c.hear(3, wire::Leave{"done"}));
  wire::Join tokyo = member_of("tokyo", {RunId{7}, RoundId{0}, kRight}, voters_of({"paris", "tokyo", "lima"}));
  tokyo.report.record.promised = start.term;
  tokyo.report.record.proposals = {{start, true, CoordinatorHarness::done(start).slices}};
  tokyo.report.holds_mean = true;
  const auto actions = c.hear(4, tokyo);
  ASSERT_EQ(sent<wire::Commit>(actions).size(), 1U);
  const auto member_left = sent<wire::MemberLeft>(actions);
  ASSERT_EQ(member_left.size(), 1U);
  EXPECT_EQ(member_left[0].first, LinkId{4});
  EXPECT_EQ(member_left[0].second.site, "lima");
}

// lima is no participant, so its loss ends no attempt; it is in the membership that the attempt names, by its number.
TEST(CoordinatorMembers, ANumberOfTheNextMembershipIsNotGivenToAnother) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.come(3, join_of("lima", 2)));
  static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  static_cast<void>(c.hear(1, CoordinatorHarness::ready(1)));
  static_cast<void>(c.hear(2, CoordinatorHarness::ready(1)));
  const auto starts = sent<wire::StartAttempt>(c.hear(3, CoordinatorHarness::ready(1)));
  ASSERT_EQ(starts.size(), 3U);
  const wire::StartAttempt start = starts.back().second;
  ASSERT_EQ(start.voters.size(), 3U);
  EXPECT_EQ(start.voters[2].name, "lima");
  EXPECT_THAT(sent<wire::StartAttempt>(c.close(2)), testing::IsEmpty()) << "one of two voters";
  static_cast<void>(c.close(3));  // all may have accepted: a successor may commit it
  const auto welcomes = sent<wire::Welcome>(c.come(4, join_of("oslo", 2)));
  ASSERT_EQ(welcomes.size(), 1U);
  EXPECT_NE(welcomes[0].second.site, start.voters[2].site);
  EXPECT_THAT(sent<wire::MemberLeft>(c.hear(4, wire::Leave{"bye"})), testing::IsEmpty()) << "oslo is no voter";
}

// A site that says that it holds the anchor and then does nothing would be missing from every quorum once it is gone.
TEST(CoordinatorMembers, AMemberThatHasTakenPartInNoRoundIsNoVoter) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  for (std::uint32_t link = 3; link < 13; ++link) {
    static_cast<void>(c.come(link, join_of("idle" + std::to_string(link), 2)));
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  }
  static_cast<void>(c.hear(1, CoordinatorHarness::ready(1)));
  static_cast<void>(c.hear(2, CoordinatorHarness::ready(1)));
  const auto starts = sent<wire::StartAttempt>(c.pass(seconds(100), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  ASSERT_EQ(starts.size(), 2U) << "idle members are not counted against those who are ready";
  const wire::StartAttempt start = starts.back().second;
  EXPECT_EQ(start.voters.size(), 2U);
  static_cast<void>(c.hear(1, CoordinatorHarness::done(start)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(2, CoordinatorHarness::done(start))).size(), 2U);
  for (std::uint32_t link = 3; link < 13; ++link) static_cast<void>(c.close(link));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  static_cast<void>(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  static_cast<void>(c.hear(1, CoordinatorHarness::ready(2)));
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(2, CoordinatorHarness::ready(2))).size(), 2U);
}

TEST(CoordinatorMembers, ALinkThatDidNotJoinIsClosed) {
  CoordinatorHarness c;
  for (const wire::Message& message :
       std::vector<wire::Message>{CoordinatorHarness::ready(1), wire::Heartbeat{}, wire::Leave{}, wire::Welcome{}}) {
    const auto actions = c.hear(5, message);
    ASSERT_EQ(actions.size(), 1U);
    EXPECT_THAT(all<CloseLink>(actions)[0].why, HasSubstr("a site sends Join first"));
  }
}

TEST(CoordinatorMembers, MessagesSitesNeverSendAreIgnoredByName) {
  CoordinatorHarness c;
  c.gather({"paris"});
  for (const wire::Message& message :
       std::vector<wire::Message>{wire::Welcome{}, wire::Refuse{}, wire::Roster{}, wire::InstallAnchor{},
                                  wire::StartAttempt{}, wire::Commit{}, wire::LeaveAck{}, wire::Hello{},
                                  wire::FetchAnchor{}, wire::AnchorMoved{}, wire::Chunk{}, wire::StatusReport{}}) {
    EXPECT_THAT(notes(c.hear(1, message)), HasSubstr("a message that sites never send to coordinators"));
  }
  EXPECT_THAT(notes(c.hear(1, join_of("paris"))), HasSubstr("second Join"));
  EXPECT_EQ(c.coordinator.members(), 1U);
}

TEST(CoordinatorMembers, StatusNeedsNoJoin) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  wire::Ready ready = CoordinatorHarness::ready(1, 32);
  ready.measured = {.step_us = 250'000,
                    .round_us = 1'500'000,
                    .waited_ppm = 20'000,
                    .overlapped_ppm = 600'000,
                    .merged_ppm = 5'000,
                    .loss = std::bit_cast<std::uint32_t>(0.5F)};
  static_cast<void>(c.hear(1, ready));
  ready.measured.step_us = ready.measured.round_us =
      0;  // as after a round that was skipped: what it measured before is told
  static_cast<void>(c.hear(1, ready));
  c.now += seconds(0.25);
  const auto reports = sent<wire::StatusReport>(c.hear(9, wire::StatusQuery{}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(
      reports[0].second.json,
      R"({"swarm":"swarm","term":1,"generation":1,"run":7,"round":0,"period":0,"attempt":0,"waiting_for":"round 1: waiting for tokyo",)"
      R"("spread":null,"cosine":null,"leads":true,"voters":["paris","tokyo"],"recovering":[],"missing":[],"applicants":[],"members":[{"site":0,"name":"paris","address":"paris:1","state":"active","helper":false,"ready":true,"round":0,)"
      R"("weight":32,"samples":32,"up_mbit":0,"down_mbit":0,"share":0,"loss":0.5,"step_seconds":0.25,"round_seconds":1.5,"waited":0.02,"overlapped":0.6,"merged":0.005,"heartbeat_age_ms":250},{"site":1,"name":"tokyo","address":"tokyo:1",)"
      R"("state":"active","helper":false,"ready":false,"round":0,"weight":0,"samples":0,"up_mbit":0,"down_mbit":0,"share":0,"loss":null,"step_seconds":0,"round_seconds":0,"waited":0,"overlapped":0,"merged":0,"heartbeat_age_ms":250}],"contributed":[]})");
}

// Names as long as they may be, of characters that are written as two.
std::string long_name(std::size_t i) {
  const std::string number = std::to_string(i);
  return number + std::string(wire::kMaxNameBytes - number.size(), '"');
}

TEST(CoordinatorMembers, AnAnswerAboutManyLongNamesFitsAMessageAndSaysHowManyItLeavesOut) {
  CoordinatorHarness c;
  wire::Join join = member_of("paris", {RunId{7}, RoundId{3}, kRight}, {});
  for (std::uint32_t i = 0; i < wire::kMaxSites; ++i)
    join.report.record.voters.push_back({SiteId{i}, long_name(i), AcceptorId{i + 1}});
  static_cast<void>(c.hear(1, join));
  const auto waits = sent<wire::StatusReport>(c.hear(9, wire::StatusQuery{}));
  ASSERT_EQ(waits.size(), 1U);
  ASSERT_TRUE(wire::try_encode(waits[0].second).ok()) << waits[0].second.json.size();
  EXPECT_THAT(waits[0].second.json, HasSubstr("\"voters_left_out\":39"));
  EXPECT_THAT(waits[0].second.json, HasSubstr("\"missing_left_out\":39"));

  CoordinatorHarness leads;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    wire::Join helper = join_of(long_name(i));
    helper.helper = true;
    helper.address = std::string(wire::kMaxAddressBytes, '"');
    static_cast<void>(leads.hear(i, helper));
  }
  const auto led = sent<wire::StatusReport>(leads.hear(5000, wire::StatusQuery{}));
  ASSERT_EQ(led.size(), 1U);
  ASSERT_TRUE(wire::try_encode(led[0].second).ok()) << led[0].second.json.size();
  EXPECT_THAT(led[0].second.json, HasSubstr("\"members_left_out\":"));
}

}  // namespace
}  // namespace collab::protocol
