// A leader that founded a swarm because no site knew better, one that needs a site without its record, and the
// operator's word.
#include <gmock/gmock.h>

#include "tests/unit/protocol/election_world.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using H = CoordinatorHarness;

// ---- founded ---------------------------------------------------------------------------------------

// Of the swarm that comes, at that round, all are paris.
wire::Join from_another(std::uint64_t run, std::uint64_t round, std::uint64_t promised = 1) {
  wire::Join paris = member_of("paris", {RunId{run}, RoundId{round}, kWrong}, voters_of({"paris"}));
  paris.report.record.promised = TermId{promised};
  return paris;
}

TEST(Founder, StepsDownForAnOlderSwarm) {
  H c;
  c.gather({"lima"});
  const auto actions = c.come(2, from_another(3, 0));
  EXPECT_EQ(all<CloseLink>(actions).at(0).link, LinkId{1});
  EXPECT_THAT(all<CloseLink>(actions).at(0).why,
              HasSubstr("paris belongs to an older swarm than the one that has just begun here"));
  const auto installs = sent<wire::InstallAnchor>(actions);
  ASSERT_EQ(installs.size(), 1U) << notes(actions);
  EXPECT_EQ(installs[0].second.run, RunId{3});
  EXPECT_GT(installs[0].second.term, TermId{1});
}

// The others have come over because it stays (inquiry.h): it must not give way to them.
TEST(Founder, StaysIfItHasAgreedFarMoreOften) {
  for (const std::uint64_t theirs : {1, 2, 6, 7}) {
    H c;
    c.gather({"lima"});
    for (std::uint64_t round = 1; round <= 2; ++round) {
      const wire::StartAttempt start = c.start(round, 1);
      static_cast<void>(c.hear(1, H::done(start)));
      static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{round}, kRight}));
    }
    const auto actions = c.come(2, from_another(3, theirs));
    EXPECT_EQ(sent<wire::InstallAnchor>(actions).at(0).second.run, RunId{theirs > 6 ? 3U : 7U}) << theirs;
  }
}

// A forged record can name the sites that are here as its voters.
TEST(Founder, IsNotDeposedByOneSitesClaimIfItLeadsSeveral) {
  H c;
  c.gather({"lima", "oslo"});
  const wire::StartAttempt start = c.start(1, 2);
  for (std::uint64_t link = 1; link <= 2; ++link) static_cast<void>(c.hear(link, H::done(start)));
  wire::Join liar = from_another(3, 1000);
  liar.report.record.voters = voters_of({"lima", "oslo", "paris"});
  EXPECT_THAT(all<CloseLink>(c.hear(3, liar)), IsEmpty());
  EXPECT_EQ(c.coordinator.members(), 3U);
}

// A swarm that was away and finds another in its place comes as one site after the other.
TEST(Founder, StepsDownOnceAMajorityOfAnOlderSwarmIsHere) {
  H c;
  c.gather({"lima"});
  static_cast<void>(c.hear(1, H::done(c.start(1, 1))));
  wire::Join paris = from_another(3, 1000);
  paris.report.record.voters = voters_of({"oslo", "paris", "tokyo"});
  EXPECT_THAT(all<CloseLink>(c.come(2, paris)), IsEmpty()) << "one of three";
  wire::Join oslo = member_of("oslo", {RunId{3}, RoundId{1000}, kWrong}, voters_of({"oslo", "paris", "tokyo"}));
  EXPECT_THAT(notes(c.come(3, oslo)), HasSubstr("no longer leads: oslo belongs to an older swarm"));
  // paris has taken the anchor that was founded here, and with it another acceptor.
  wire::Join gone_over = member_of("paris", {RunId{7}, RoundId{1}, kRight}, voters_of({"lima"}));
  gone_over.report.record.acceptor = acceptor_of("paris", 1);
  static_cast<void>(c.come(4, member_of("lima", {RunId{7}, RoundId{1}, kRight}, voters_of({"lima"}))));
  static_cast<void>(c.come(5, gone_over));
  static_cast<void>(c.come(6, oslo));
  const auto later = c.pass(seconds(61), {4, 5, 6});
  EXPECT_THAT(
      notes(later),
      HasSubstr("under another run's name; this coordinator leads term 2, elected by 3 sites, at run 3 round 1000"));
  const auto installs = sent<wire::InstallAnchor>(later);
  ASSERT_EQ(installs.size(), 3U) << notes(later);
  EXPECT_GT(installs[0].second.run, RunId{7});
  EXPECT_EQ(installs[0].second.round, RoundId{1000});
  EXPECT_EQ(installs[0].second.digest, kWrong) << "that of oslo";
}

// Its own newest anchor is lost: what is left of it is no more than what the other swarm's site brings.
TEST(Founder, ContinuesFromTheNewestRemainingAnchorIfItsOwnIsLost) {
  H c;
  c.gather({"lima"});
  for (std::uint64_t round = 1; round <= 2; ++round) {
    static_cast<void>(c.hear(1, H::done(c.start(round, 1))));
    static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{round}, kRight}));
  }
  wire::Join paris = from_another(3, 20);
  paris.report.record.voters = voters_of({"oslo", "paris", "tokyo"});
  static_cast<void>(c.come(2, paris));
  static_cast<void>(c.close(1));
  const auto actions = c.come(3, member_of("lima", {RunId{7}, RoundId{1}, kRight}, voters_of({"lima"})));
  EXPECT_THAT(notes(actions), HasSubstr("no site has brought back round 2"));
  const auto installs = sent<wire::InstallAnchor>(actions);
  ASSERT_EQ(installs.size(), 2U) << notes(actions);
  EXPECT_EQ(installs[0].second.round, RoundId{20});
  EXPECT_EQ(installs[0].second.digest, kWrong);
}

TEST(Founder, IsNotDeposedByOneOfItsOwnRun) {
  H c;
  c.gather({"lima", "paris"});
  static_cast<void>(c.close(2));
  const auto actions = c.hear(3, member_of("paris", {RunId{7}, RoundId{0}, kRight}, voters_of({"lima", "paris"})));
  EXPECT_EQ(sent<wire::Welcome>(actions).size(), 1U) << notes(actions);
}

// A term alone says nothing of a swarm that has agreed on more.
TEST(Founder, DoesNotGiveWayToATermAlone) {
  H c;
  c.gather({"lima"});
  wire::Join stranger = join_of("paris");
  stranger.report.record.promised = TermId{99};
  const auto actions = c.hear(2, stranger);
  EXPECT_THAT(all<CloseLink>(actions), testing::IsEmpty()) << notes(actions);
  EXPECT_EQ(c.coordinator.members(), 2U);
}

TEST(Founder, TakesNothingFromASwarmOfAnotherName) {
  H c;
  c.gather({"lima"});
  wire::Join other = from_another(3, 0, 99);
  other.swarm = "other";
  const auto actions = c.hear(2, other);
  EXPECT_EQ(sent<wire::Refuse>(actions).size(), 1U);
  EXPECT_EQ(c.coordinator.members(), 1U);
}

// ---- a voter without its record --------------------------------------------------------------------

// Four that have agreed on round 4; three of them lead.
class Renewal : public testing::Test {
 protected:
  Renewal() {
    H::Actions last;
    for (std::uint64_t link = 1; link <= 3; ++link) {
      last = c.come(link, voter(names[link - 1], 1, names));
      for (const auto& [to, install] : sent<wire::InstallAnchor>(last)) install_at(to.value);
    }
    EXPECT_EQ(c.coordinator.members(), 3U);
  }
  void install_at(std::uint64_t link) {
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{4}, kRight}));
  }
  H::Actions all_ready(const std::vector<std::uint64_t>& links) {
    H::Actions last;
    for (const std::uint64_t link : links) last = c.hear(link, H::ready(5));
    return last;
  }
  wire::Join forgetful_oslo() {
    wire::Join oslo = voter("oslo", 0, names);
    oslo.report.record.acceptor = acceptor_of("oslo", 1);
    return oslo;
  }

  const std::vector<std::string> names{"paris", "tokyo", "lima", "oslo"};
  H c;
};

TEST_F(Renewal, JoinsLikeAnyOtherIfItIsNotNeeded) {
  const auto actions = c.hear(4, forgetful_oslo());
  EXPECT_EQ(sent<wire::Welcome>(actions).at(0).second.site, SiteId{3}) << notes(actions);
  EXPECT_EQ(sent<wire::InstallAnchor>(actions).size(), 1U);
  install_at(4);
  const auto starts = sent<wire::StartAttempt>(all_ready({1, 2, 3, 4}));
  ASSERT_EQ(starts.size(), 4U);
  EXPECT_EQ(starts[0].second.voters[3].acceptor, acceptor_of("oslo", 1)) << "from then on it remembers";
}

// What it had promised and accepted before it does not know: under this term it is no witness.
TEST_F(Renewal, ARecoveringSiteDoesNotCountUnderATermThatBeganBeforeItCame) {
  static_cast<void>(c.hear(4, forgetful_oslo()));
  install_at(4);
  static_cast<void>(c.hear(1, H::ready(5)));
  static_cast<void>(c.hear(2, H::ready(5)));
  const auto actions = c.hear(4, H::ready(5));
  EXPECT_TRUE(sent<wire::StartAttempt>(c.pass(seconds(1), {1, 2, 3, 4})).empty());
  EXPECT_TRUE(sent<wire::StartAttempt>(actions).empty()) << "lima is waited for";
  EXPECT_EQ(sent<wire::StartAttempt>(c.pass(seconds(61), {1, 2, 3, 4})).size(), 0U)
      << "two of four with this one by name";
}

TEST_F(Renewal, ARecoveringSiteThatIsNeededMakesANewTermBegin) {
  static_cast<void>(c.close(3));
  EXPECT_EQ(c.coordinator.members(), 2U);
  const auto actions = c.hear(4, forgetful_oslo());
  ASSERT_EQ(all<CloseLink>(actions).size(), 3U) << notes(actions);
  EXPECT_THAT(all<CloseLink>(actions)[0].why,
              HasSubstr("a new term begins, in which sites without their records count"));
  static_cast<void>(c.come(5, c.said.at(1)));
  static_cast<void>(c.come(6, c.said.at(2)));
  const auto elected = c.come(7, forgetful_oslo());
  EXPECT_EQ(sent<wire::Welcome>(elected).size(), 3U) << notes(elected);
  for (const std::uint64_t link : {5, 6, 7}) install_at(link);
  EXPECT_EQ(sent<wire::StartAttempt>(all_ready({5, 6, 7})).size(), 3U);
}

// ---- the operator's word, and who asks -------------------------------------------------------------

TEST(Forget, WorksAtALeaderThatHasLostItsMajority) {
  H c;
  c.gather({"paris", "tokyo", "lima"});
  static_cast<void>(c.close(2));
  static_cast<void>(c.close(3));
  const auto down = c.hear(9, wire::Forget{{"tokyo", "lima"}});
  EXPECT_THAT(all<CloseLink>(down).at(0).why, HasSubstr("the missing sites are forgotten"));
  const auto installs =
      sent<wire::InstallAnchor>(c.come(4, member_of("paris", {RunId{7}, RoundId{0}, kRight}, voters_of(kNames))));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_NE(installs[0].second.run, RunId{7});
}

TEST(Forget, ChangesNothingIfAMajorityIsHere) {
  H c;
  c.gather({"paris", "tokyo", "lima"});
  static_cast<void>(c.close(3));
  EXPECT_THAT(all<CloseLink>(c.hear(9, wire::Forget{{"lima"}})), IsEmpty());
  EXPECT_EQ(c.coordinator.members(), 2U);
}

// It was said of one absence: when that site has come back and is lost again, nobody has said so.
TEST(Forget, HoldsForOneAbsenceOnly) {
  CoordinatorConfig config = H::defaults();
  config.fresh_run = RunId{70};
  H c(config);
  static_cast<void>(c.come(1, voter("paris")));
  ASSERT_EQ(sent<wire::InstallAnchor>(c.hear(9, wire::Forget{{"tokyo", "lima"}})).size(), 1U);
  for (std::uint64_t link = 1; link <= 3; ++link) static_cast<void>(c.close(link));
  for (std::uint64_t link = 11; link <= 13; ++link) static_cast<void>(c.come(link, voter(kNames[link - 11], 9)));
  EXPECT_EQ(c.coordinator.members(), 3U) << "they came back";
  for (std::uint64_t link = 11; link <= 13; ++link) static_cast<void>(c.close(link));
  EXPECT_THAT(sent<wire::InstallAnchor>(c.come(21, voter("paris", 20))), IsEmpty());
}

TEST(Inquiry, IsAnsweredByALeaderWithItsRoundAndByACandidateWithNone) {
  H c;
  const auto asked = [&](const std::string& swarm) {
    const auto answers = sent<wire::Leads>(c.hear(9, wire::Inquire{swarm}));
    return answers.empty() ? wire::Leads{true, 0, {}, {}, 0} : answers[0].second;
  };
  EXPECT_FALSE(asked("swarm").leads);
  static_cast<void>(c.come(1, voter("paris")));
  EXPECT_FALSE(asked("swarm").leads) << "it is a candidate";
  static_cast<void>(c.come(2, voter("tokyo")));
  EXPECT_EQ(asked("swarm"), (wire::Leads{true, 1, RunId{7}, RoundId{4}, 2}));
  EXPECT_FALSE(asked("another").leads);
}

}  // namespace
}  // namespace collab::protocol
