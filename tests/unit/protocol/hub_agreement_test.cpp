// What successive hubs agree on: which ranks are gone, and what stands. First come whole worlds, then the hub and the
// rank message by message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/protocol/hub_world.h"

namespace collab::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HubTestWorld;
using ::testing::IsEmpty;
using testing::kBeat;
using testing::kGrace;

constexpr GroupId kGroup{1};
constexpr Duration kSoon = std::chrono::seconds(1);

// Everybody in one group of sums.
struct Sums {
  explicit Sums(const std::vector<std::string>& sites, std::size_t hubs = 2) : world(3, sites, hubs) {
    std::vector<RankId> all;
    for (std::uint32_t i = 0; i < world.size(); ++i) all.emplace_back(i);
    world.open(kGroup, all);
    world.run_for(kSoon);
  }
  void sum(const std::vector<std::uint32_t>& ranks, std::uint64_t step, Duration timeout = Duration(0)) {
    for (const std::uint32_t rank : ranks) {
      HubRequest request{step, kGroup, 0, "sum", "", wire::Absence::kProceeds, 0, true, false, {}, {}, timeout};
      request.payload = world.bytes("part");
      world.at_client(rank, request);
    }
  }
  [[nodiscard]] bool given(const std::vector<std::uint32_t>& ranks, std::uint64_t step, Duration limit) {
    return world.run_until(
        [&] { return std::ranges::all_of(ranks, [&](auto rank) { return world.rank(rank).done.contains(step); }); },
        limit);
  }
  [[nodiscard]] const HubExchanged& result(std::uint32_t rank, std::uint64_t step) {
    return world.rank(rank).done.at(step);
  }
  [[nodiscard]] std::string error(std::uint32_t rank, std::uint64_t step) {
    return result(rank, step).status.message();
  }

  HubTestWorld world;
};

TEST(HubAgreement, NoResultIsGivenOutBeforeAllHoldIt) {
  Sums sums({"paris", "oslo", "bern"});
  sums.world.rank(2).deaf = true;
  sums.sum({0, 1, 2}, 1);
  EXPECT_FALSE(sums.given({0}, 1, kSoon));
  sums.world.rank(2).deaf = false;
  EXPECT_TRUE(sums.given({0, 1, 2}, 1, kSoon));
}

TEST(HubAgreement, AHubThatDiedAfterTellingOneRankHasDecidedNothing) {
  Sums sums({"paris", "oslo", "bern"});
  for (const std::uint32_t rank : {1U, 2U}) sums.world.rank(rank).deaf = true;
  sums.sum({0, 1, 2}, 1);
  EXPECT_FALSE(sums.given({0}, 1, kSoon));  // rank 0 holds it
  sums.world.kill_hub(0);
  sums.world.kill_rank(0);
  sums.world.heal();
  ASSERT_TRUE(sums.given({1, 2}, 1, 4 * kGrace));
  EXPECT_THAT(sums.result(1, 1).absent, ElementsAre(0U));
  EXPECT_THAT(sums.result(2, 1).absent, ElementsAre(0U));
}

TEST(HubAgreement, AStepThatOneHasCompletedStandsForTheOthers) {
  Sums sums({"paris", "oslo", "bern"});
  sums.world.on_told = [&](std::uint32_t rank, const wire::Message& message) {
    if (std::holds_alternative<wire::StepResult>(message) && rank != 0) sums.world.rank(rank).deaf = true;
  };
  sums.sum({0, 1, 2}, 1,
           std::chrono::seconds(2));  // they hold it, and hear no more; it must not time out at the next hub
  ASSERT_TRUE(sums.given({0}, 1, kSoon));
  EXPECT_FALSE(sums.given({1}, 1, kBeat));
  sums.world.on_told = nullptr;
  sums.world.kill_hub(0);
  sums.world.kill_rank(0);  // with what it was given
  sums.world.heal();
  ASSERT_TRUE(sums.given({1, 2}, 1, 4 * kGrace));
  EXPECT_THAT(sums.result(1, 1).absent, IsEmpty());
  EXPECT_EQ(HubTestWorld::text_of(sums.result(2, 1).parts[0]), "part");
}

TEST(HubAgreement, ASiteAloneAtTheSecondHubFailsWhileTheOthersContinue) {
  Sums sums({"paris", "paris", "oslo", "bern"});
  sums.world.block(2, 0);  // it finds the other hub
  sums.sum({0, 1, 2, 3}, 1);
  ASSERT_TRUE(sums.given({0, 1, 3}, 1, 2 * kGrace));
  EXPECT_THAT(sums.result(0, 1).absent, ElementsAre(2U));
  ASSERT_TRUE(sums.given({2}, 1, 4 * kGrace));
  EXPECT_THAT(sums.error(2, 1),
              HasSubstr("only 1 of 3 sites can reach this coordinator; the other sites may go on without "
                        "this one; missing: paris, bern"));
  sums.world.heal();
  sums.sum({0, 1, 2, 3}, 2);
  ASSERT_TRUE(sums.given({0, 1, 2, 3}, 2, kSoon));
  EXPECT_THAT(sums.error(2, 2), HasSubstr("only 1 of 3 sites")) << "it never comes back";
  EXPECT_THAT(sums.result(3, 2).absent, ElementsAre(2U));
}

TEST(HubAgreement, ALoneSurvivorOfTwoGoesOn) {
  Sums sums({"paris", "oslo"});
  sums.world.kill_rank(1);
  sums.sum({0}, 1);
  ASSERT_TRUE(sums.given({0}, 1, kGrace + kBeat + kSoon));
  EXPECT_EQ(sums.error(0, 1), "");
  EXPECT_THAT(sums.result(0, 1).absent, ElementsAre(1U));
}

TEST(HubAgreement, ALoneSurvivorGoesOnWhenTheHubDiedWithTheOther) {
  Sums sums({"paris", "oslo"});
  sums.world.kill_rank(0);
  sums.world.kill_hub(0);
  sums.sum({1}, 1);
  ASSERT_TRUE(sums.given({1}, 1, 4 * kGrace));
  EXPECT_THAT(sums.result(1, 1).absent, ElementsAre(0U));
}

TEST(HubAgreement, TwoRanksThatContinueApartStayApart) {
  Sums sums({"paris", "oslo"});
  sums.world.block(1, 0);
  sums.world.block(0, 1);
  sums.sum({0, 1}, 1);
  ASSERT_TRUE(sums.given({0, 1}, 1, 4 * kGrace));
  EXPECT_THAT(sums.result(0, 1).absent, ElementsAre(1U));
  EXPECT_THAT(sums.result(1, 1).absent, ElementsAre(0U));
  sums.world.heal();
  sums.world.kill_hub(0);
  sums.sum({0, 1}, 2);
  ASSERT_TRUE(sums.given({0, 1}, 2, 4 * kGrace));
  EXPECT_EQ(sums.error(1, 2), "");
  EXPECT_THAT(sums.error(0, 2), HasSubstr("rank 0 of paris was left out of its world's collectives"));
}

TEST(HubAgreement, ALoneSurvivorContinuesOfTwoThatWereLeftOfThree) {
  Sums sums({"paris", "oslo", "bern"});
  sums.world.kill_rank(2);
  sums.sum({0, 1}, 1);
  ASSERT_TRUE(sums.given({0, 1}, 1, kGrace + kBeat + kSoon));
  EXPECT_THAT(sums.result(0, 1).absent, ElementsAre(2U));
  sums.world.kill_rank(1);
  sums.sum({0}, 2);
  ASSERT_TRUE(sums.given({0}, 2, kGrace + kBeat + kSoon));
  EXPECT_EQ(sums.error(0, 2), "");
  EXPECT_THAT(sums.result(0, 2).absent, ElementsAre(1U, 2U));
}

TEST(HubAgreement, AMinorityOfThreeFailsWithTheReason) {
  Sums sums({"paris", "paris", "oslo", "bern"});
  for (const std::uint32_t rank : {2U, 3U}) sums.world.kill_rank(rank);
  sums.sum({0, 1}, 1);
  ASSERT_TRUE(sums.given({0, 1}, 1, 4 * kGrace));
  EXPECT_THAT(sums.error(1, 1), HasSubstr("this rank's world has no majority at hub0, hub1 for 6 s"));
  EXPECT_THAT(sums.error(0, 1), HasSubstr("only 1 of 3 sites can reach this coordinator"));
}

TEST(HubAgreement, AMinorityOfFiveFailsWithTheReason) {
  Sums sums({"a", "b", "c", "d", "e"});
  for (const std::uint32_t rank : {2U, 3U, 4U}) {
    sums.world.block(rank, 0);
    if (rank == 4) sums.world.kill_rank(4);
  }
  for (const std::uint32_t rank : {0U, 1U}) sums.world.block(rank, 1);
  sums.sum({0, 1, 2, 3}, 1);
  ASSERT_TRUE(sums.given({0, 1}, 1, 6 * kGrace));
  EXPECT_THAT(sums.error(0, 1),
              HasSubstr("only 2 of 5 sites can reach this coordinator; the other sites may go on without "
                        "these; missing: c, d, e"));
  ASSERT_TRUE(sums.given({2, 3}, 1, 6 * kGrace));
  EXPECT_THAT(sums.error(2, 1), HasSubstr("only 2 of 5 sites"));
}

// The only hub has died, and an error of a later step has come to a rank before it came to the steps in between.
TEST(HubAgreement, ARankThatMissedStepsOfALostHubGetsErrorsForThem) {
  Sums sums({"paris", "oslo", "bern"}, 1);
  sums.sum({0, 1, 2}, 1);
  sums.world.rank(2).deaf = true;
  ASSERT_TRUE(sums.given({0, 1}, 1, kSoon));
  sums.sum({0, 1}, 2, kBeat);
  ASSERT_TRUE(sums.given({0, 1}, 2, kSoon));
  sums.world.kill_hub(0);
  sums.world.revive_hub(0);
  sums.world.heal();
  ASSERT_TRUE(sums.given({2}, 1, 2 * kGrace));
  sums.sum({0, 1}, 3, kBeat);
  ASSERT_TRUE(sums.given({0, 1}, 3, 2 * kGrace));
  sums.world.run_for(kSoon);
  sums.sum({2}, 2);
  ASSERT_TRUE(sums.given({2}, 2, kSoon));
  EXPECT_THAT(sums.error(2, 2), HasSubstr("[hub.too-late]"));
  sums.sum({2}, 3);
  ASSERT_TRUE(sums.given({2}, 3, kSoon));
  EXPECT_EQ(sums.error(2, 3), sums.error(0, 3));
  sums.sum({0, 1, 2}, 4);
  ASSERT_TRUE(sums.given({0, 1, 2}, 4, kSoon));
  EXPECT_EQ(sums.error(2, 4), "");
}

// It has promised, and will promise nothing else.
TEST(HubAgreement, APromiseOutlivesItsRank) {
  Sums sums({"paris", "oslo", "bern"});
  sums.world.kill_rank(2);
  sums.world.kill_hub(0);  // the next one has never heard of it
  sums.sum({0, 1}, 1);
  sums.world.run_for(2 * kSoon);
  sums.world.at_client(0, HubLeave{"the end"});
  ASSERT_TRUE(sums.given({1}, 1, 4 * kGrace));
  EXPECT_EQ(sums.error(1, 1), "");
}

// By name there are enough, and too few of them are there to promise anything to a successor.
TEST(HubAgreement, ARankLeftAloneFailsWithTheReason) {
  Sums sums({"paris", "oslo", "bern"});
  sums.world.kill_rank(2);
  sums.world.kill_hub(0);
  sums.world.run_for(2 * kSoon);
  sums.world.at_client(0, HubLeave{"the end"});
  sums.sum({1}, 1);
  sums.world.revive_hub(0);
  sums.world.block(1, 1);
  sums.world.run_for(kSoon);
  sums.world.unblock(1, 1);  // it comes back with a promise to the other one
  sums.world.kill_hub(0);
  ASSERT_TRUE(sums.given({1}, 1, 8 * kGrace));
  EXPECT_THAT(sums.error(1, 1), HasSubstr("has no majority"));
}

TEST(HubAgreement, RanksYetToComeHoldTheError) {
  Sums sums({"paris", "oslo", "bern"});
  sums.sum({0, 1}, 1, std::chrono::seconds(2));
  ASSERT_TRUE(sums.given({0, 1}, 1, std::chrono::seconds(4)));
  EXPECT_THAT(sums.error(0, 1), HasSubstr("rank 2 of bern did not reach it in time"));
  sums.world.kill_hub(0);
  sums.sum({2}, 1);
  EXPECT_TRUE(sums.given({2}, 1, Duration(0))) << "it needs no hub to know";
  EXPECT_EQ(sums.error(2, 1), sums.error(0, 1));
  sums.sum({0, 1, 2}, 2);
  ASSERT_TRUE(sums.given({0, 1, 2}, 2, 3 * kGrace));
  EXPECT_EQ(sums.error(2, 2), "");
}

TEST(HubAgreement, ARankTooFarBehindIsOutOfTheGroup) {
  Sums sums({"paris", "oslo", "bern"});
  for (std::uint64_t step = 1; step <= 66; ++step) {
    sums.sum({0, 1}, step, std::chrono::milliseconds(100));
    ASSERT_TRUE(sums.given({0, 1}, step, kGrace + kSoon)) << step;
  }
  EXPECT_THAT(sums.result(0, 66).absent, ElementsAre(2U));
  sums.sum({2}, 1);
  EXPECT_THAT(sums.error(2, 1), HasSubstr("this rank fell too far behind"));
}

// ---- the hub, message by message -------------------------------------------------------------------

class HubAgreementTest : public ::testing::Test {
 protected:
  static constexpr wire::Ballot kOurs{1, 50};
  CollectiveHub hub{{"default", kBeat, kGrace, std::chrono::seconds(20), 50}};
  TimePoint now{};

  [[nodiscard]] static wire::Enter enter(std::uint32_t rank, wire::Ballot promised = {}) {
    wire::Enter message{"default", 7, RankId(rank), {"a", "b", "c"}, {0, 1, 2}, 2, false, AcceptorId(10 + rank)};
    message.promised = promised;
    return message;
  }
  // What each link is told, in order.
  std::vector<std::pair<std::uint64_t, std::string>> told(const HubEvent& event) {
    std::vector<std::pair<std::uint64_t, std::string>> all;
    for (const HubAction& action : hub.step(now, event)) {
      const auto* send = std::get_if<HubSend>(&action);
      if (send == nullptr) continue;
      all.emplace_back(send->link.value, text_of(send->message));
    }
    return all;
  }
  [[nodiscard]] static std::string text_of(const wire::Message& message) {
    const auto ballot = [](const wire::Ballot& b) { return std::to_string(b.term) + "." + std::to_string(b.hub); };
    const auto epoch = [](const wire::Epoch& e) {
      std::string text = std::to_string(e.number) + " without";
      for (const RankId rank : e.gone) text += " " + std::to_string(rank.value);
      return text;
    };
    if (const auto* m = std::get_if<wire::PrepareWorld>(&message)) return "prepare " + ballot(m->ballot);
    if (const auto* m = std::get_if<wire::AcceptEpoch>(&message)) {
      return "accept " + ballot(m->ballot) + ": " + epoch(m->epoch);
    }
    if (const auto* m = std::get_if<wire::ChosenEpoch>(&message)) return "chosen " + epoch(m->epoch);
    if (const auto* m = std::get_if<wire::Entered>(&message)) return "entered " + ballot(m->ballot);
    if (const auto* m = std::get_if<wire::Refuse>(&message)) return m->reason;
    return "another";
  }
  auto from(std::uint64_t link, wire::Message message) {
    return told(HubReceived{LinkId(link), std::move(message), nullptr});
  }
  using Told = std::pair<std::uint64_t, std::string>;
};

TEST_F(HubAgreementTest, LeadsOnceMoreThanHalfOfTheSitesHavePromised) {
  EXPECT_THAT(from(1, enter(0)), ElementsAre(Told(1, "prepare 1.50")));
  EXPECT_THAT(from(2, enter(1)), ElementsAre(Told(2, "prepare 1.50")));
  EXPECT_THAT(from(1, enter(0, kOurs)), IsEmpty());
  EXPECT_THAT(from(2, enter(1, kOurs)), ElementsAre(Told(1, "entered 1.50"), Told(2, "entered 1.50")));
}

TEST_F(HubAgreementTest, RaisesItsBallotAboveWhatWasPromised) {
  (void)from(1, enter(0, kOurs));
  (void)from(2, enter(1, kOurs));
  EXPECT_THAT(from(3, enter(2, {5, 9})),
              ElementsAre(Told(1, "prepare 6.50"), Told(2, "prepare 6.50"), Told(3, "prepare 6.50")));
  EXPECT_THAT(from(1, wire::Assemble{kGroup, {RankId(0), RankId(1)}}), IsEmpty()) << "said under the older one";
  EXPECT_THAT(from(1, enter(0, {6, 50})), IsEmpty());
  EXPECT_THAT(from(3, enter(2, {6, 50})), ElementsAre(Told(1, "entered 6.50"), Told(3, "entered 6.50")));
}

TEST_F(HubAgreementTest, OneRankMakesItRaiseItsBallotFourTimesThenOnceAGrace) {
  (void)from(1, enter(0, kOurs));
  (void)from(2, enter(1, kOurs));
  const auto raised = [&](std::uint64_t link, std::uint64_t term) {
    return from(link, enter(2, {term, 9})).size() > 1;
  };
  for (std::uint64_t term = 100; term < 500; term += 100) EXPECT_TRUE(raised(3, term));
  EXPECT_FALSE(raised(3, 500));
  EXPECT_THAT(from(2, enter(1, {401, 50})), IsEmpty());
  EXPECT_THAT(from(1, enter(0, {401, 50})), ElementsAre(Told(1, "entered 401.50"), Told(2, "entered 401.50")));
  EXPECT_FALSE(raised(4, 500));
  now += kGrace;
  EXPECT_TRUE(raised(5, 500));
}

TEST_F(HubAgreementTest, CompletesWhatAnotherMayHaveChosen) {
  (void)from(2, enter(1, kOurs));
  wire::Enter witness = enter(0, kOurs);
  witness.accepted_under = {1, 7};
  witness.accepted = {1, {RankId(2)}};
  EXPECT_THAT(from(1, witness), ElementsAre(Told(1, "accept 1.50: 1 without 2"), Told(2, "accept 1.50: 1 without 2")));
  EXPECT_THAT(from(1, wire::AcceptedEpoch{kOurs, 1}), IsEmpty());
  EXPECT_THAT(from(2, wire::AcceptedEpoch{{1, 49}, 1}), IsEmpty()) << "under another ballot";
  EXPECT_THAT(from(2, wire::AcceptedEpoch{kOurs, 1}),
              ElementsAre(Told(1, "chosen 1 without 2"), Told(2, "chosen 1 without 2"), Told(1, "entered 1.50"),
                          Told(2, "entered 1.50")));
  const auto refused = from(3, enter(2));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second, HasSubstr("rank 2 of c was left out of its world's collectives"));
}

// It would accept nothing that comes after what it does not know.
TEST_F(HubAgreementTest, ARankWithAnOlderMembershipIsToldTheNewest) {
  wire::Enter ahead = enter(0, kOurs);
  ahead.chosen = {1, {RankId(2)}};
  (void)from(1, ahead);
  EXPECT_THAT(from(2, enter(1, kOurs)),
              ElementsAre(Told(2, "chosen 1 without 2"), Told(1, "entered 1.50"), Told(2, "entered 1.50")));
}

TEST_F(HubAgreementTest, TheHighestBallotIsCompleted) {
  wire::Enter first = enter(0, kOurs);
  first.accepted_under = {1, 7};
  first.accepted = {1, {RankId(2)}};
  wire::Enter second = enter(1, kOurs);
  second.accepted_under = {1, 8};
  second.accepted = {1, {RankId(0), RankId(2)}};
  (void)from(1, first);
  EXPECT_THAT(from(2, second),
              ElementsAre(Told(1, "accept 1.50: 1 without 0 2"), Told(2, "accept 1.50: 1 without 0 2")));
}

TEST_F(HubAgreementTest, RefusesARankThatWasStartedAgain) {
  (void)from(1, enter(0, kOurs));
  (void)told(Closed{LinkId(1), unavailable("cut")});
  wire::Enter again = enter(0);
  again.acceptor = AcceptorId(99);
  const auto refused = from(2, again);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second, HasSubstr("rank 0 of a has been in its world's collectives as another process"));
  EXPECT_THAT(from(3, enter(0, kOurs)), IsEmpty()) << "the one it knows may come back";
}

// ---- the rank, message by message ------------------------------------------------------------------

TEST(HubAcceptor, FollowsNoBallotOlderThanItHasPromised) {
  wire::Enter self{"default", 7, RankId(0), {"a", "b"}, {0, 1}, 1, false, AcceptorId(1)};
  HubClient client({self, {"x", "y"}, kBeat, kGrace, kGrace});
  const auto told = [&](wire::Message message) {
    return client.step({}, HubReceived{LinkId(1), std::move(message), nullptr});
  };
  (void)client.step({}, HubBegin{});
  (void)client.step({}, HubConnected{LinkId(1)});
  const auto promise = told(wire::PrepareWorld{{4, 2}});
  ASSERT_EQ(promise.size(), 1U);
  EXPECT_EQ(std::get<wire::Enter>(std::get<HubSend>(promise[0]).message).promised, (wire::Ballot{4, 2}));
  EXPECT_THAT(told(wire::AcceptEpoch{{3, 9}, {1, {RankId(1)}}}), IsEmpty());
  EXPECT_EQ(told(wire::AcceptEpoch{{4, 2}, {1, {RankId(1)}}}).size(), 1U);
  const auto again = told(wire::PrepareWorld{{4, 3}});
  const auto& enter = std::get<wire::Enter>(std::get<HubSend>(again.at(0)).message);
  EXPECT_EQ(enter.accepted_under, (wire::Ballot{4, 2}));
  EXPECT_EQ(enter.accepted, (wire::Epoch{1, {RankId(1)}}));
  EXPECT_TRUE(std::holds_alternative<CloseLink>(told(wire::PrepareWorld{{4, 2}}).at(0)));
}

}  // namespace
}  // namespace collab::protocol
