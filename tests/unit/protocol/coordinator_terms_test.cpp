// What sites say of terms and rounds that no swarm has reached, and how long their names may be in total.
#include <gmock/gmock.h>

#include "core/protocol/agreement/term_limit.h"
#include "tests/unit/protocol/election_world.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using H = CoordinatorHarness;

// The clock stands at so many seconds since 1970.
class FarTerms : public testing::Test {
 protected:
  static constexpr std::uint64_t kSeconds = 2'000'000;
  static constexpr std::uint64_t kLimit = kSeconds * 4096;
  static CoordinatorConfig early_coordinator() {
    CoordinatorConfig config = H::defaults();
    config.fresh_run = RunId{70};
    config.terms.since_1970 = seconds(kSeconds);
    return config;
  }
  // paris and tokyo have elected it, and hold the anchor.
  void elect() {
    static_cast<void>(c.come(1, voter("paris")));
    const auto actions = c.come(2, voter("tokyo"));
    for (const auto& [link, install] : sent<wire::InstallAnchor>(actions)) {
      static_cast<void>(c.hear(link.value, wire::AnchorInstalled{install.run, install.round, install.digest}));
    }
  }
  static SiteConfig early_site() {
    SiteConfig config = SiteHarness::defaults();
    config.terms.since_1970 = seconds(kSeconds);
    return config;
  }

  H c{early_coordinator()};
};

TEST_F(FarTerms, ATermAboveTheClocksLimitIsIgnoredUntilTheClockAllowsIt) {
  elect();
  const auto actions = c.hear(3, voter("lima", kLimit + 1));
  EXPECT_THAT(all<CloseLink>(actions).at(0).why, HasSubstr("[join.far-term]"));
  EXPECT_THAT(sent<wire::Refuse>(actions), IsEmpty()) << "its clock or this one may be wrong: it may come again";
  EXPECT_EQ(c.coordinator.members(), 2U) << "it leads on";
  static_cast<void>(c.pass(seconds(1), {1, 2}));
  EXPECT_THAT(notes(c.hear(4, voter("lima", kLimit + 1))), HasSubstr("no longer leads"));
}

TEST_F(FarTerms, AFarTermInAPromiseClosesTheLink) {
  static_cast<void>(c.hear(1, voter("paris")));
  static_cast<void>(c.hear(2, voter("tokyo")));
  const wire::Join lies = voter("tokyo", kLimit + 1);
  EXPECT_THAT(all<CloseLink>(c.hear(2, wire::Promise{TermId{2}, lies.offer, lies.report})).at(0).why,
              HasSubstr("[join.far-term]"));
  EXPECT_FALSE(c.coordinator.knows(LinkId{2}));
}

TEST_F(FarTerms, ALeavingSiteWithTheHighestTermKeepsNoFreshSiteOut) {
  wire::Join liar = join_of("liar");
  liar.report.record.promised = TermId{kLimit};
  static_cast<void>(c.come(1, liar));
  static_cast<void>(c.close(1));
  const auto welcomes = sent<wire::Welcome>(c.come(2, join_of("tokyo")));
  ASSERT_EQ(welcomes.size(), 1U);
  EXPECT_GT(welcomes[0].second.term, TermId{kLimit});

  SiteHarness fresh(early_site());
  static_cast<void>(fresh.step(Begin{join_of("tokyo")}));
  static_cast<void>(fresh.step(CoordinatorConnected{LinkId{1}}));
  const auto actions = fresh.hear(1, welcomes[0].second);
  EXPECT_THAT(all<CloseLink>(actions), IsEmpty()) << notes(actions);
  EXPECT_EQ(fresh.site.record().promised, welcomes[0].second.term);
}

TEST_F(FarTerms, AVoterThatHasPromisedTheHighestEndsNoElection) {
  elect();
  static_cast<void>(c.hear(3, voter("lima", kLimit)));  // it steps down for that
  ASSERT_EQ(c.coordinator.members(), 0U);
  static_cast<void>(c.come(4, voter("paris", 2)));
  static_cast<void>(c.come(5, voter("tokyo", 2)));
  EXPECT_GE(c.coordinator.members(), 2U);
  EXPECT_GT(c.said.at(4).report.record.promised, TermId{kLimit});
  EXPECT_TRUE(c.coordinator.knows(LinkId{4}));
}

// Nothing that they follow may keep sites out, as it is in their records from there on.
TEST(TermLimit, AnInflatedPromiseOfOneSiteIsHeardEverywhere) {
  const TermLimit terms{seconds(2'000'000)};
  const TermId raised{terms.at(TimePoint{}).value + 1};
  EXPECT_GT(raised, terms.at(TimePoint{}));
  EXPECT_LE(raised, terms.at(TimePoint{seconds(1)}));
  EXPECT_EQ(TermLimit{}.at(TimePoint{}), TermId{wire::kMaxTerm});
  EXPECT_EQ(TermLimit{-seconds(5)}.at(TimePoint{}), TermId{std::uint64_t{1} << 32}) << "a clock before 1970";
  constexpr std::chrono::hours kOf2126(24 * 365 * 156);
  EXPECT_LT(TermLimit{kOf2126}.at(TimePoint{}), TermId{wire::kMaxTerm});
}

// A newcomer's word makes no round of which there is no next one.
TEST(Rounds, FarAboveAllThatAreKnownAreRefused) {
  constexpr std::uint64_t kFar = wire::kMaxRoundStep + 1;
  const auto refused = [](const H::Actions& actions) {
    const auto said = sent<wire::Refuse>(actions);
    return said.size() == 1 && said[0].second.reason.find("[join.record-damaged]") != std::string::npos;
  };
  const auto of_round = [](std::uint64_t round) {
    const wire::Offer anchor{RunId{90}, RoundId{round}, kRight};
    return member_of("eve", anchor, voters_of({"eve"}));
  };
  H c;
  EXPECT_TRUE(refused(c.hear(9, of_round(kFar)))) << "at a birth";
  wire::Join no_record = join_of("eve");
  no_record.offer = {RunId{90}, RoundId{kFar}, kRight};
  EXPECT_TRUE(refused(c.hear(9, no_record)));
  c.gather({"paris", "tokyo"});
  EXPECT_TRUE(refused(c.hear(9, of_round(kFar)))) << "at a leader";
  static_cast<void>(c.hear(8, join_of("eve")));
  EXPECT_TRUE(refused(c.hear(8, wire::AnchorInstalled{RunId{90}, RoundId{kFar}, kRight})));
  EXPECT_EQ(c.coordinator.members(), 2U) << "who said so is none any more";

  H candidate;
  static_cast<void>(candidate.hear(1, member_of("paris", {RunId{7}, RoundId{4}, kRight}, voters_of({"paris"}))));
  wire::Join lies = member_of("paris", {RunId{7}, RoundId{4 + kFar}, kRight}, voters_of({"paris"}));
  EXPECT_TRUE(refused(candidate.hear(1, wire::Promise{TermId{2}, lies.offer, lies.report}))) << "in a promise";
  EXPECT_FALSE(candidate.coordinator.knows(LinkId{1}));
}

// Each site has to remember them all, and to say them in one message.
TEST(CoordinatorNames, AreRefusedIfTheyAreTooLongInAll) {
  H c;
  const auto name = [](std::size_t i) { return std::string(250, 'x') + std::to_string(100'000 + i); };
  constexpr std::size_t kFit = (std::size_t{256} << 10) / 256;
  for (std::size_t i = 0; i < kFit; ++i) static_cast<void>(c.hear(i + 1, join_of(name(i))));
  EXPECT_EQ(c.coordinator.members(), kFit);
  const auto refused = sent<wire::Refuse>(c.hear(kFit + 1, join_of("y")));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("[join.full]"));
  EXPECT_THAT(sent<wire::Refuse>(c.hear(kFit + 2, join_of(name(0)))), IsEmpty()) << "it was counted already";
}

}  // namespace
}  // namespace collab::protocol
