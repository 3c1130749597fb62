// Which part of the vector a round averages.
#include "core/protocol/fragments.h"

#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using H = SiteHarness;

TEST(Fragments, CoverTheVectorInEqualParts) {
  for (const std::uint64_t elements : {65'536ULL, 1'000'003ULL, 25'000'000ULL, 124'439'808ULL}) {
    for (const std::uint32_t count : {1U, 2U, 3U, 4U, 7U, 64U}) {
      const Fragments fragments = fragments_for(count, elements);
      ASSERT_EQ(fragments.count, count);
      std::uint64_t end = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        const ElementRange range = fragments.range(elements, i);
        EXPECT_EQ(range.begin, end);
        EXPECT_EQ(range.begin % kBlockElements, 0U);
        end = range.end;
        const double even = static_cast<double>(elements) / count;
        if (even < 20 * kBlockElements) continue;
        EXPECT_NEAR(static_cast<double>(range.size()), even, 0.1 * even) << count << " of " << elements;
      }
      EXPECT_EQ(end, elements);
    }
  }
}

TEST(Fragments, TakeTurnsFromTheFirstRoundOn) {
  const Fragments three{3};
  EXPECT_EQ(three.in_turn(RoundId{1}), 0U);
  EXPECT_EQ(three.in_turn(RoundId{2}), 1U);
  EXPECT_EQ(three.in_turn(RoundId{3}), 2U);
  EXPECT_EQ(three.in_turn(RoundId{4}), 0U);
}

TEST(Fragments, AShortVectorHasOne) {
  EXPECT_EQ(fragments_for(4, 4 * kBlockElements).count, 4U);
  EXPECT_EQ(fragments_for(4, 4 * kBlockElements - 1).count, 1U);
}

TEST(Fragments, AreAsTheSharedSettingsSay) {
  constexpr std::uint64_t kElements = 1'000'000;
  EXPECT_EQ(fragments_of({{"codec", "int8"}, {"fragments", "4"}}, kElements).count, 4U);
  EXPECT_EQ(fragments_of({}, kElements).count, 1U);
  for (const char* bad : {"", "0", "65", "4x", "-1", "99999999999"}) {
    EXPECT_EQ(fragments_of({{"fragments", bad}}, kElements).count, 1U) << bad;
  }
}

wire::Join in_two(wire::Join join) {
  join.settings.push_back({"fragments", "2"});
  return join;
}

// ---- a site --------------------------------------------------------------------------------------------

// Site 0 of two in a swarm of two fragments: 4096 elements, 2048 a fragment.
class SiteWithFragments : public testing::Test {
 protected:
  SiteWithFragments() {
    const std::vector<std::string> names{"paris", "tokyo"};
    s.join_as(1, names, in_two(join_of("tokyo")));
    static_cast<void>(
        s.hear(1, wire::InstallAnchor{
                      TermId{1}, RunId{7}, RoundId{0}, {SiteId{1}}, kRight, wire::Counted::kNo, voters_of(names)}));
    static_cast<void>(s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight}));
    s.link_to(0, "paris", 2);
  }
  static wire::StartAttempt start(std::uint64_t round, ElementRange range) {
    wire::StartAttempt start = H::start(round, 1, 2);
    start.slices = {{SiteId{0}, {range.begin, range.begin + kBlockElements}},
                    {SiteId{1}, {range.begin + kBlockElements, range.end}}};
    return start;
  }
  wire::Ready trains(std::uint64_t samples) { return sent<wire::Ready>(s.step(Trigger{samples, samples}))[0].second; }
  std::uint64_t averages(std::uint64_t round, ElementRange range) {
    static_cast<void>(s.hear(1, start(round, range)));
    static_cast<void>(s.step(ExchangeComplete{RoundId{round}, AttemptId{1}, {kRight, kRight}}));
    static_cast<void>(
        s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{round}, AttemptId{1}, {SiteId{0}, SiteId{1}}}));
    const auto done = all<RoundDone>(s.step(Applied{RoundId{round}, kRight}));
    EXPECT_EQ(done.size(), 1U);
    return done.empty() ? 0 : done[0].samples;
  }
  const ElementRange first{0, 2048};
  const ElementRange second{2048, 4096};
  SiteHarness s;
};

TEST_F(SiteWithFragments, EachFragmentCountsWhatWasTrainedSinceItsOwnLastRound) {
  EXPECT_EQ(trains(8).samples, 8U);
  EXPECT_EQ(averages(1, first), 8U);
  EXPECT_EQ(trains(20).samples, 20U) << "nothing of it is in the second fragment";
  EXPECT_EQ(averages(2, second), 20U);
  EXPECT_EQ(trains(30).samples, 22U) << "8 of 30 are in the first";
  EXPECT_EQ(averages(3, first), 30U);
  EXPECT_EQ(trains(30).samples, 10U);
  EXPECT_EQ(averages(4, second), 30U);
  EXPECT_EQ(trains(30).weight, 0) << "all is in both";
}

TEST_F(SiteWithFragments, AnAttemptAtAnotherFragmentIsIgnored) {
  static_cast<void>(trains(8));
  const auto actions = s.hear(1, start(1, second));
  EXPECT_TRUE(all<StartExchange>(actions).empty());
  EXPECT_THAT(notes(actions), HasSubstr("expected those that are due, 0 to 2048"));
  EXPECT_EQ(all<StartExchange>(s.hear(1, start(1, first))).size(), 1U);
}

TEST_F(SiteWithFragments, AnAbandonedAttemptIsAbandonedInAllFragments) {
  static_cast<void>(trains(8));
  static_cast<void>(s.hear(1, start(1, first)));
  static_cast<void>(s.step(ContributionUnfit{RoundId{1}, AttemptId{1}, "NaN"}));
  wire::StartAttempt without = start(1, first);
  without.attempt = AttemptId{2};
  without.participants[1].weight = 0;
  static_cast<void>(s.hear(1, without));
  static_cast<void>(s.step(ExchangeComplete{RoundId{1}, AttemptId{2}, {kRight, kRight}}));
  const auto apply =
      all<ApplyCommit>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{2}, {SiteId{0}}}));
  ASSERT_EQ(apply.size(), 1U);
  EXPECT_EQ(apply[0].base, Base::kUnfit);
  static_cast<void>(s.step(Applied{RoundId{1}, kRight}));
  EXPECT_EQ(trains(10).samples, 2U) << "of the second fragment, too";
}

// ---- who leads -----------------------------------------------------------------------------------------

class CoordinatorWithFragments : public testing::Test {
 protected:
  CoordinatorWithFragments() {
    for (const std::uint64_t link : {1, 2}) {
      static_cast<void>(c.hear(link, in_two(join_of(link == 1 ? "paris" : "tokyo", 2))));
    }
    for (const std::uint64_t link : {1, 2}) {
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    }
  }
  void all_are_done(const wire::StartAttempt& start) {
    for (const std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, CoordinatorHarness::done(start)));
  }
  CoordinatorHarness c;
};

TEST_F(CoordinatorWithFragments, DividesTheFragmentInTurnAmongTheOwners) {
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const wire::StartAttempt start = c.start(round, 2);
    const std::uint64_t begin = round == 2 ? 2048 : 0;
    ASSERT_EQ(start.slices.size(), 2U);
    EXPECT_EQ(start.slices[0].range, (ElementRange{begin, begin + kBlockElements}));
    EXPECT_EQ(start.slices[1].range, (ElementRange{begin + kBlockElements, begin + 2048}));
    all_are_done(start);
  }
}

TEST_F(CoordinatorWithFragments, TalliesEachSampleOnce) {
  for (std::uint64_t round = 1; round <= 4; ++round) all_are_done(c.start(round, 2));  // a sample a site and round
  const auto reports = sent<wire::StatusReport>(c.hear(9, wire::StatusQuery{}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_THAT(reports[0].second.json,
              HasSubstr(R"("contributed":[{"name":"paris","samples":2,"rounds":4},{"name":"tokyo","samples":2,)"));
}

}  // namespace
}  // namespace collab::protocol
