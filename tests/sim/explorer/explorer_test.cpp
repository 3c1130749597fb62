// The explorer's own rules: a copy goes the way of the original, states that go on alike are one, schedules can be run
// again, and its judges judge. What it finds in the protocol: mutants_test.cpp, and collab_explorer itself.
#include "tests/sim/explorer/explorer.h"

#include <gtest/gtest.h>

#include "tests/unit/protocol/harness.h"

namespace collab::sim {
namespace {

TEST(World, ACopyGoesTheWayOfTheOriginal) {
  for (const Beginning setup : {Beginning{Start::kAgreed}, Beginning{Start::kSplit}, Beginning{Start::kJoining},
                                Beginning{Start::kFresh}, Beginning{Start::kAgreed, 2}}) {
    World original(setup);
    for (int i = 0; i < 40; ++i) original.step();
    World copy = original;
    for (int i = 0; i < 20; ++i) copy.step();
    const Digest later = copy.digest();
    for (int i = 0; i < 20; ++i) original.step();  // untouched by what the copy did
    EXPECT_EQ(original.digest(), later);
    while (!original.is_done()) {
      original.step();
      copy.step();
      ASSERT_EQ(original.digest(), copy.digest()) << original.steps();
    }
    EXPECT_EQ(original.commits(), original.rounds());
    EXPECT_TRUE(original.broken().empty());
  }
}

TEST(World, ADepartureIsAnotherState) {
  World world;
  for (int i = 0; i < 20; ++i) world.step();
  for (const char how : world.choices()) {
    World other = world;
    other.depart(how);
    EXPECT_NE(other.digest(), world.digest()) << how;
  }
}

TEST(Canon, TimesAreFromNowAndLinksAreNumbered) {
  const auto at = [](double seconds) { return TimePoint{} + protocol::seconds(seconds); };
  const std::vector<LinkId> few{LinkId{3}, LinkId{7}};
  const std::vector<LinkId> later{LinkId{12}, LinkId{40}};
  Canon a(at(5), few);
  Canon b(at(65), later);
  a.all(at(6), kNever, LinkId{7}, std::set<LinkId>{LinkId{1}, LinkId{3}}, wire::Heartbeat{1, false});
  b.all(at(66), kNever, LinkId{40}, std::set<LinkId>{LinkId{12}}, wire::Heartbeat{9, false});
  EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
  a.put(at(4));
  b.put(at(60));
  EXPECT_FALSE(std::ranges::equal(a.bytes(), b.bytes()));
}

TEST(Schedule, IsATextAndBack) {
  const Schedule schedule{{12, 'd'}, {40, 'k'}};
  EXPECT_EQ(text_of(schedule), "12d.40k");
  EXPECT_EQ(schedule_from("12d.40k"), schedule);
  EXPECT_EQ(schedule_from(text_of({})), Schedule{});
  EXPECT_FALSE(schedule_from("12"));
  EXPECT_FALSE(schedule_from("d12"));
}

TEST(Schedule, ImpossibleEventsAreLeftOut) {
  std::string told;
  const auto listen = [&](const std::string& line) { told += line + "\n"; };
  EXPECT_TRUE(replay({}, {{12, '?'}, {13, 'd'}}, listen).empty());
  EXPECT_NE(told.find("there is no departure 12?"), std::string::npos);
  EXPECT_NE(told.find("13d instead of"), std::string::npos);
}

class Ledgers : public testing::Test {
 protected:
  wire::StartAttempt start(std::uint64_t round, std::uint32_t attempt) {
    wire::StartAttempt start{TermId{1}, 1, {}, RunId{7}, RoundId{round}, AttemptId{attempt}, {}, {}, {}};
    start.participants.push_back({SiteId{0}, "paris", 2.0, AttemptId{attempt}});
    ledger.started(start);
    return start;
  }
  void commit(const wire::StartAttempt& start) {
    ledger.committed({start.term, start.run, start.round, start.attempt, {SiteId{0}}});
  }
  Ledger ledger;
};

TEST_F(Ledgers, ASampleCountsOnce) {
  const wire::StartAttempt first = start(1, 1);
  ledger.contributes(first, "paris", {"paris.1", 0, 2});
  commit(first);
  EXPECT_TRUE(ledger.broken().empty());
  const wire::StartAttempt second = start(2, 1);
  ledger.contributes(second, "paris", {"paris.1", 1, 3});
  commit(second);
  EXPECT_EQ(ledger.broken().size(), 1U);
}

TEST_F(Ledgers, CountedWorkWasExchangedWithItsWeight) {
  commit(start(1, 1));
  EXPECT_EQ(ledger.broken().size(), 1U);
  const wire::StartAttempt second = start(2, 1);
  ledger.contributes(second, "paris", {"paris.1", 0, 1});
  commit(second);
  EXPECT_EQ(ledger.broken().size(), 2U);
}

TEST(Explorer, SaysWhatIsCompleteAndWhatWasCutOff) {
  ExploreOptions options;
  options.delays = 1;
  options.faults = 0;
  Explorer whole(options);
  EXPECT_TRUE(whole.run());
  EXPECT_EQ(whole.levels().size(), 2U);
  for (const auto& [bound, level] : whole.levels()) EXPECT_TRUE(level.complete());

  options.most_states = whole.states() / 2;
  Explorer part(options);
  EXPECT_TRUE(part.run());
  EXPECT_FALSE(part.levels().at({1, 0}).complete());
}

}  // namespace
}  // namespace collab::sim
