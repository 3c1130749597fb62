// Looking at the other candidates: a swarm that has agreed on more, or one that leads where this site only waits.
#include <gmock/gmock.h>

#include <set>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using H = SiteHarness;

constexpr wire::Leads kNothing{};

std::vector<DialCoordinator> inquiries(const H::Actions& actions) {
  auto dials = all<DialCoordinator>(actions);
  std::erase_if(dials, [](const auto& dial) { return !dial.inquiry; });
  return dials;
}

class SiteInquiry : public testing::Test {
 protected:
  explicit SiteInquiry(std::vector<std::string> candidates = {"first:1", "second:2"})
      : s(config(std::move(candidates))) {
    s.shows_inquiries = true;
  }
  static SiteConfig config(std::vector<std::string> candidates) {
    SiteConfig config;
    config.coordinators = std::move(candidates);
    return config;
  }
  // A member of run 7 at round 0, at the first candidate.
  void become() { s.become(1, {"paris", "tokyo"}); }
  // With a coordinator that lives.
  H::Actions wait(int time) {
    H::Actions actions;
    for (int second = 0; second < time; ++second) {
      static_cast<void>(s.hear(1, wire::Heartbeat{}));
      for (auto& action : s.pass(seconds(1))) actions.push_back(std::move(action));
    }
    return actions;
  }
  // What the second candidate answers, on link 9, and what follows.
  H::Actions answer(const wire::Leads& leads) {
    const auto asked = sent<wire::Inquire>(s.step(CoordinatorConnected{LinkId{9}, true}));
    EXPECT_EQ(asked.size(), 1U);
    EXPECT_EQ(asked.at(0).first, LinkId{9});
    EXPECT_EQ(asked.at(0).second.swarm, "swarm");
    return s.hear(9, leads);
  }
  static wire::Leads leads(std::uint64_t run, std::uint64_t round) { return {true, 1, RunId{run}, RoundId{round}, 2}; }
  // Whether the answer makes a member of (run 7, round 0) go there.
  bool goes(const wire::Leads& leads) {
    EXPECT_FALSE(inquiries(wait(62)).empty());
    const auto actions = answer(leads);
    const auto hangups = all<CloseLink>(actions);
    EXPECT_EQ(hangups.at(0).link, LinkId{9}) << "the question is answered";
    if (hangups.size() == 1) return false;
    EXPECT_EQ(hangups.at(1).link, LinkId{1});
    const auto dials = all<DialCoordinator>(s.pass(seconds(1)));
    EXPECT_EQ(dials.at(0).candidate, 1U);
    EXPECT_FALSE(dials.at(0).inquiry);
    return true;
  }
  H s;
};

TEST_F(SiteInquiry, AMemberAsksTheOtherCandidateOnceAGrace) {
  become();
  const auto asked = inquiries(wait(300));
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked[0].candidate, 1U);
  EXPECT_LE(asked.size(), 5U);
  static_cast<void>(s.step(DialFailed{std::nullopt, unavailable("refused"), true}));
  EXPECT_FALSE(inquiries(wait(62)).empty()) << "and again";
}

// Else looks may keep step with the rounds of two swarms, of which each site finds the other the better, for ever.
TEST_F(SiteInquiry, LooksAreNotEvenlySpaced) {
  become();
  std::set<int> pauses;
  int last = 0;
  for (int second = 0; second < 1'000; ++second) {
    static_cast<void>(s.hear(1, wire::Heartbeat{}));
    if (inquiries(s.pass(seconds(1))).empty()) continue;
    static_cast<void>(s.step(DialFailed{std::nullopt, unavailable("refused"), true}));
    if (last != 0) pauses.insert(second - last);
    last = second;
  }
  EXPECT_GE(pauses.size(), 5U);
}

TEST_F(SiteInquiry, TheSiteStaysIfTheOtherLeadsNothing) {
  become();
  EXPECT_FALSE(goes(kNothing));
}

TEST_F(SiteInquiry, TheLaterRunOfTwoSwarmsThatGrowAlikeStays) {
  become();
  EXPECT_TRUE(goes(leads(8, 0)));
}
TEST_F(SiteInquiry, TheSiteStaysIfAnEarlierRunElsewhereHasAgreedOnAsMuch) {
  become();
  EXPECT_FALSE(goes(leads(6, 2)));
}
TEST_F(SiteInquiry, AnEarlierRunThatHasAgreedOnMuchMoreStays) {
  become();
  EXPECT_TRUE(goes(leads(6, 3)));
}
TEST_F(SiteInquiry, TheSiteStaysInTheLargerSwarmWhileBothGrowAlike) {
  become();
  wire::Leads small = leads(8, 0);
  small.members = 1;
  EXPECT_FALSE(goes(small));
}
TEST_F(SiteInquiry, TheSiteGoesToTheLargerSwarmWhileBothGrowAlike) {
  become();
  wire::Leads large = leads(6, 0);
  large.members = 3;
  EXPECT_TRUE(goes(large));
}
TEST_F(SiteInquiry, TheSiteStaysIfItsOwnRunIsLedElsewhere) {
  become();
  EXPECT_FALSE(goes(leads(7, 90)));
}
TEST_F(SiteInquiry, TheSiteStaysIfAnotherGenerationIsLedElsewhere) {
  become();
  wire::Leads other = leads(8, 90);
  other.generation = 2;
  EXPECT_FALSE(goes(other));
}

// The order of two must be the same, whichever of them is asked.
TEST(SiteInquiryOrder, IsTheSameFromBothSides) {
  const auto goes = [](std::uint64_t run, std::uint64_t round, std::uint64_t to_run, std::uint64_t to_round) {
    H s;
    s.shows_inquiries = true;
    s.join_as(1, {"paris", "tokyo"}, join_of("tokyo"));
    static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{run}, RoundId{round}, {SiteId{1}}, kRight}));
    static_cast<void>(s.step(AnchorInPlace{RunId{run}, RoundId{round}, kRight}));
    bool asked = false;
    for (int second = 0; second < 62 && !asked; ++second) {
      static_cast<void>(s.hear(1, wire::Heartbeat{}));
      asked = !inquiries(s.pass(seconds(1))).empty();
    }
    EXPECT_TRUE(asked);
    static_cast<void>(s.step(CoordinatorConnected{LinkId{9}, true}));
    return all<CloseLink>(s.hear(9, wire::Leads{true, 1, RunId{to_run}, RoundId{to_round}, 2})).size() == 2;
  };
  for (std::uint64_t a = 0; a < 12; ++a) {
    for (std::uint64_t b = 0; b < 12; ++b) {
      EXPECT_NE(goes(3, a, 5, b), goes(5, b, 3, a)) << a << " and " << b;
    }
  }
}

// ---- one that waits --------------------------------------------------------------------------------

TEST_F(SiteInquiry, AWaitingSiteGoesWhereASwarmHasBegun) {
  static_cast<void>(s.step(Begin{join_of("tokyo")}));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
  EXPECT_FALSE(inquiries(s.pass(seconds(10))).empty());
  const auto actions = answer(leads(7, 0));
  ASSERT_EQ(all<CloseLink>(actions).size(), 2U);
  EXPECT_THAT(all<CloseLink>(actions)[1].why, HasSubstr("another candidate leads a swarm that has begun"));
  EXPECT_EQ(all<DialCoordinator>(s.pass(seconds(1))).at(0).candidate, 1U);
}

// One of two that had agreed on round 500 of run 7, while the other is away.
class SiteThatAgreedOnMore : public SiteInquiry {
 protected:
  bool goes(const wire::Leads& there) {
    static_cast<void>(
        s.step(Begin{member_of("tokyo", {RunId{7}, RoundId{500}, kRight}, voters_of({"paris", "tokyo"}))}));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
    EXPECT_FALSE(inquiries(s.pass(seconds(10))).empty());
    return all<CloseLink>(answer(there)).size() == 2;
  }
};
TEST_F(SiteThatAgreedOnMore, StaysWhereASwarmHasJustBegunElsewhere) { EXPECT_FALSE(goes(leads(8, 1))); }
TEST_F(SiteThatAgreedOnMore, GoesOnceASwarmElsewhereHasAgreedOnAboutAsMuch) { EXPECT_TRUE(goes(leads(8, 249))); }
TEST_F(SiteThatAgreedOnMore, GoesWhereItsOwnRunIsLed) { EXPECT_TRUE(goes(leads(7, 3))); }
TEST_F(SiteThatAgreedOnMore, GoesWhereNothingIsAgreedOnYet) { EXPECT_TRUE(goes(leads(8, 0))); }

// At a candidate that leads run 7 at round 4, and that takes long to let it in.
class SiteNotLetInYet : public SiteInquiry {
 protected:
  bool goes(const wire::Leads& there) {
    static_cast<void>(s.step(Begin{join_of("tokyo")}));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
    static_cast<void>(s.hear(1, leads(7, 4)));
    EXPECT_FALSE(inquiries(s.pass(seconds(10))).empty());
    return all<CloseLink>(answer(there)).size() == 2;
  }
};
TEST_F(SiteNotLetInYet, StaysWhereASwarmElsewhereIsNoBetter) { EXPECT_FALSE(goes(leads(6, 4))); }
TEST_F(SiteNotLetInYet, GoesWhereAMemberWouldGo) { EXPECT_TRUE(goes(leads(6, 11))); }
// The leader here has lost its majority, and does not know it yet.
TEST_F(SiteNotLetInYet, GoesWhereTheSameRunIsLedWithMoreRounds) { EXPECT_TRUE(goes(leads(7, 5))); }
TEST_F(SiteNotLetInYet, StaysWhereTheSameRunIsLedWithNoMoreRounds) { EXPECT_FALSE(goes(leads(7, 4))); }

// It was to install an anchor that nobody holds any more: the leader here has none, and waits for others.
TEST_F(SiteInquiry, ASiteInstallingALostAnchorGoesWhereASwarmHasBegun) {
  for (const bool gone : {false, true}) {
    s = H(config({"first:1", "second:2"}));
    s.shows_inquiries = true;
    static_cast<void>(s.step(Begin{join_of("tokyo")}));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
    static_cast<void>(s.hear(1, wire::Welcome{TermId{1}, SiteId{1}, 1000, 60000}));
    static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, kWrong}));
    EXPECT_EQ(sent<wire::Inquire>(s.pass(seconds(1))).size(), 1U);
    static_cast<void>(s.hear(1, wire::Leads{!gone, 1, RunId{7}, RoundId{0}, 1}));
    EXPECT_EQ(inquiries(s.pass(seconds(10))).empty(), !gone);
    if (!gone) continue;
    EXPECT_EQ(all<CloseLink>(answer(leads(8, 0))).size(), 2U);
  }
}

// ---- where nobody leads ----------------------------------------------------------------------------

class SiteInquiryWithoutLeader : public SiteInquiry {
 protected:
  static wire::Leads waiting(std::uint64_t name, std::uint32_t members) {
    return {false, 1, RunId{name}, RoundId{0}, members};
  }
  // At one candidate, of name 5, where `here` wait; the other answers `there`.
  bool goes(std::uint32_t here, const wire::Leads& there, bool elected = false) {
    static_cast<void>(s.step(Begin{join_of("tokyo")}));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
    static_cast<void>(s.hear(1, waiting(5, here)));
    EXPECT_FALSE(inquiries(s.pass(seconds(3))).empty());
    if (elected) static_cast<void>(s.hear(1, wire::Prepare{TermId{9}}));
    return all<CloseLink>(answer(there)).size() == 2;
  }
};
TEST_F(SiteInquiryWithoutLeader, GoesWhereMoreSitesWait) { EXPECT_TRUE(goes(2, waiting(9, 3))); }
TEST_F(SiteInquiryWithoutLeader, StaysWhereFewerSitesWaitElsewhere) { EXPECT_FALSE(goes(2, waiting(1, 1))); }
TEST_F(SiteInquiryWithoutLeader, GoesToTheLowerNameWhereAsManyWait) { EXPECT_TRUE(goes(2, waiting(4, 2))); }
TEST_F(SiteInquiryWithoutLeader, StaysAtTheLowerNameWhereAsManyWait) { EXPECT_FALSE(goes(2, waiting(6, 2))); }
TEST_F(SiteInquiryWithoutLeader, StaysWhileALeaderIsElected) { EXPECT_FALSE(goes(2, waiting(9, 3), true)); }

class HeldSite : public SiteInquiry {
 protected:
  // At a coordinator where others train another model of the run; another candidate answers `there`.
  bool goes(const wire::Leads& there) {
    static_cast<void>(s.step(Begin{join_of("tokyo")}));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
    static_cast<void>(s.hear(1, wire::Hold{"paris is still at generation 2"}));
    EXPECT_FALSE(inquiries(s.pass(seconds(10))).empty());
    return all<CloseLink>(answer(there)).size() == 2;
  }
};
TEST_F(HeldSite, GoesOnceItsOwnGenerationHasBegunElsewhere) { EXPECT_TRUE(goes(leads(7, 0))); }
TEST_F(HeldSite, StaysWhileOthersLeadAnotherGeneration) {
  EXPECT_FALSE(goes(wire::Leads{true, 2, RunId{7}, RoundId{40}, 5}));
}
TEST_F(HeldSite, StaysThoughMoreSitesWaitElsewhere) {
  EXPECT_FALSE(goes(wire::Leads{false, 1, RunId{1}, RoundId{0}, 5}));
}

// ---- answers that do not come ----------------------------------------------------------------------

TEST_F(SiteInquiry, AQuestionThatIsNotAnsweredIsGivenUp) {
  become();
  EXPECT_EQ(inquiries(wait(62)).size(), 1U);
  static_cast<void>(s.step(CoordinatorConnected{LinkId{9}, true}));
  const auto later = wait(62);
  ASSERT_EQ(all<CloseLink>(later).size(), 1U);
  EXPECT_EQ(all<CloseLink>(later)[0].link, LinkId{9});
  EXPECT_EQ(all<CloseLink>(s.hear(9, leads(8, 90))).size(), 0U + all<CloseLink>(s.hear(9, kNothing)).size())
      << "too late: it is nobody's link";
}

TEST_F(SiteInquiry, ALinkOfAnEarlierInquiryIsClosed) {
  become();
  static_cast<void>(wait(62));
  EXPECT_EQ(all<CloseLink>(s.step(CoordinatorConnected{LinkId{9}, true, 0})).size(), 1U);
  EXPECT_EQ(sent<wire::Inquire>(s.step(CoordinatorConnected{LinkId{8}, true, 1})).size(), 1U);
}

TEST_F(SiteInquiry, ALinkThatClosesEndsTheQuestion) {
  become();
  static_cast<void>(wait(62));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{9}, true}));
  EXPECT_THAT(all<CloseLink>(s.step(Closed{LinkId{9}, unavailable("reset")})), IsEmpty());
  EXPECT_EQ(inquiries(wait(62)).size(), 1U) << "it asks again";
}

TEST_F(SiteInquiry, AnAnswerAfterTheCoordinatorWasLostMovesNobody) {
  become();
  static_cast<void>(wait(62));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{9}, true}));
  static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
  EXPECT_EQ(all<CloseLink>(s.hear(9, leads(8, 90))).size(), 1U);
  EXPECT_EQ(all<DialCoordinator>(s.pass(seconds(1))).at(0).candidate, 0U) << "the first in the list, as ever";
}

TEST_F(SiteInquiry, AnUnrequestedAnswerClosesItsLink) {
  become();
  EXPECT_EQ(all<CloseLink>(s.hear(9, leads(8, 90))).at(0).link, LinkId{9});
  const auto uninvited = s.step(CoordinatorConnected{LinkId{8}, true});
  EXPECT_EQ(all<CloseLink>(uninvited).at(0).link, LinkId{8});
  EXPECT_THAT(sent<wire::Inquire>(uninvited), IsEmpty());
}

TEST_F(SiteInquiry, TheLinkGoesWithTheSite) {
  become();
  static_cast<void>(wait(62));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{9}, true}));
  static_cast<void>(s.step(Depart{"done"}));
  bool closed = false;
  for (const CloseLink& hangup : all<CloseLink>(s.hear(1, wire::LeaveAck{})))
    closed = closed || hangup.link == LinkId{9};
  EXPECT_TRUE(closed);
}

// ---- who does not ask ------------------------------------------------------------------------------

TEST_F(SiteInquiry, AHelperDoesNotAsk) {
  wire::Join helper = join_of("tokyo");
  helper.helper = true;
  s.join_as(1, {"paris", "tokyo"}, helper);
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{1}}, kRight}));
  static_cast<void>(s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight}));
  EXPECT_THAT(inquiries(wait(200)), IsEmpty());
}

class SiteInquiryAtOne : public SiteInquiry {
 protected:
  SiteInquiryAtOne() : SiteInquiry({"first:1"}) {}
};
TEST_F(SiteInquiryAtOne, AsksNobodyWithOneCandidate) {
  become();
  EXPECT_THAT(inquiries(wait(200)), IsEmpty());
}

class SiteInquiryAtThree : public SiteInquiry {
 protected:
  SiteInquiryAtThree() : SiteInquiry({"first:1", "second:2", "third:3"}) {}
};
TEST_F(SiteInquiryAtThree, OtherCandidatesTakeTurns) {
  become();
  std::set<std::uint32_t> asked;
  for (int turn = 0; turn < 4; ++turn) {
    for (const auto& dial : inquiries(wait(62))) asked.insert(dial.candidate);
    static_cast<void>(s.step(DialFailed{std::nullopt, unavailable("refused"), true}));
  }
  EXPECT_EQ(asked, (std::set<std::uint32_t>{1, 2}));
}

}  // namespace
}  // namespace collab::protocol
