// Branches: a minority goes on after COLLAB_QUORUM_TIMEOUT, and joins the run it branched from when it is heard of.
#include "core/protocol/branch.h"

#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using H = CoordinatorHarness;

const wire::Branch kBranch{RunId{70}, RunId{7}, 100};

CoordinatorConfig patient(Duration quorum_timeout) {
  CoordinatorConfig config = H::defaults();
  config.quorum_timeout = quorum_timeout;
  return config;
}

wire::Join of_the_trunk(const std::string& name, std::size_t voters) {
  const std::vector<wire::Voter> all{
      {SiteId{0}, "paris"}, {SiteId{1}, "tokyo"}, {SiteId{2}, "lima"}, {SiteId{3}, "oslo"}, {SiteId{4}, "bern"}};
  wire::Join join = join_of(name, 1);
  join.offer = {RunId{7}, RoundId{0}, kRight, {}};
  join.report = {TermId{1}, true, true, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(voters)}, {}, {}};
  return join;
}

TEST(Branch, TheTrunkComesFirstThenTheOneThatLearnedFromMore) {
  const wire::Offer trunk{RunId{7}, RoundId{2}, kRight, {}};
  const wire::Offer branch{RunId{70}, RoundId{9}, kRight, {kBranch}};
  const wire::Offer sibling{RunId{80}, RoundId{3}, kRight, {{RunId{80}, RunId{7}, 200}}};
  const wire::Offer renamed{RunId{81}, RoundId{4}, kRight, {{RunId{80}, RunId{7}, 300}}};
  const wire::Offer stranger{RunId{5}, RoundId{1}, kRight, {}};
  EXPECT_EQ(trunk_first(trunk, branch), true);
  EXPECT_EQ(trunk_first(branch, trunk), false);
  EXPECT_EQ(trunk_first(sibling, branch), true);
  EXPECT_EQ(trunk_first(sibling, renamed), std::nullopt) << "the same branch";
  EXPECT_EQ(trunk_first(branch, stranger), std::nullopt);
}

TEST(Branch, AMinorityGoesOnAfterTheTimeoutAndNotBefore) {
  H c(patient(seconds(600)));
  c.gather({"paris", "tokyo", "lima"});
  static_cast<void>(c.step(Closed{LinkId{2}, {}}));
  static_cast<void>(c.step(Closed{LinkId{3}, {}}));
  ASSERT_EQ(sent<wire::Recess>(c.hear(1, H::ready(1, 5))).size(), 1U);
  static_cast<void>(c.pass(seconds(599), {1}));
  ASSERT_EQ(sent<wire::Recess>(c.hear(1, H::ready(1, 6))).size(), 1U);
  static_cast<void>(c.pass(seconds(1), {1}));
  const auto off = c.hear(1, H::ready(1, 7));
  EXPECT_THAT(notes(off), HasSubstr("[branch] 1 of the 3 sites that agreed on round 0, which is no majority; missing"));
  const auto adopts = sent<wire::Adopt>(off);
  ASSERT_EQ(adopts.size(), 1U);
  const wire::Adopt& adopt = adopts[0].second;
  EXPECT_NE(adopt.run, RunId{7});
  EXPECT_EQ(adopt.branch, (std::vector<wire::Branch>{{adopt.run, RunId{7}, 0}}));
  EXPECT_EQ(adopt.voters, (std::vector<wire::Voter>{{SiteId{0}, "paris"}}));
  static_cast<void>(c.hear(1, wire::Adopted{adopt.run, RoundId{0}, kRight}));
  const auto forms = sent<wire::Form>(c.hear(1, H::ready(1, 7)));
  ASSERT_EQ(forms.size(), 1U);
  ASSERT_EQ(sent<wire::Commit>(c.hear(1, H::done(forms[0].second))).size(), 1U);
  static_cast<void>(c.hear(1, wire::Adopted{adopt.run, RoundId{1}, kWrong}));

  // Most of the trunk are together again: the branch has no coordinator any more, and what counts is the trunk.
  const auto back = c.hear(7, of_the_trunk("lima", 3));
  EXPECT_THAT(notes(back), HasSubstr("lima is of the run that this one branched off"));
  EXPECT_EQ(c.coordinator.members(), 0U);
}

TEST(Branch, OneOfATrunkThatCannotGoOnIsLetInAsAReturner) {
  H c(patient(seconds(60)));
  c.gather({"paris", "tokyo", "lima", "oslo", "bern"});
  for (std::uint64_t link = 2; link <= 5; ++link) static_cast<void>(c.step(Closed{LinkId{link}, {}}));
  static_cast<void>(c.hear(1, H::ready(1, 5)));
  static_cast<void>(c.pass(seconds(61), {1}));
  const auto adopt = sent<wire::Adopt>(c.hear(1, H::ready(1, 5))).at(0).second;
  static_cast<void>(c.hear(1, wire::Adopted{adopt.run, RoundId{0}, kRight}));
  static_cast<void>(c.hear(7, of_the_trunk("lima", 5)));
  EXPECT_EQ(c.coordinator.members(), 2U);
}

TEST(Branch, WithoutTheKnobAMinorityNeverMovesTheAnchor) {
  H c;
  c.gather({"paris", "tokyo", "lima"});
  static_cast<void>(c.step(Closed{LinkId{2}, {}}));
  static_cast<void>(c.step(Closed{LinkId{3}, {}}));
  for (int day = 0; day < 7; ++day) {
    ASSERT_EQ(sent<wire::Recess>(c.hear(1, H::ready(1))).size(), 1U);
    static_cast<void>(c.pass(seconds(86'400), {1}));
  }
}

class SiteBranch : public testing::Test {
 protected:
  SiteBranch() { s.become(1, {"paris", "tokyo"}); }
  // At its trigger, with the coordinator on link 1.
  SiteHarness::Actions adopt(RunId run, std::uint64_t round, Digest digest, std::vector<wire::Branch> branch,
                             std::vector<SiteId> sources) {
    wire::Adopt adopt{TermId{1}, run, RoundId{round}, std::move(sources), digest, wire::Counted::kUnknown, {}};
    adopt.branch = std::move(branch);
    static_cast<void>(s.hear(1, adopt));
    return s.step(AnchorInPlace{run, RoundId{round}, digest});
  }
  // A round of the branch in which this site is alone.
  void round_of_branch(std::uint64_t number, std::uint64_t samples) {
    static_cast<void>(s.step(Trigger{samples, samples}));
    wire::Form form = SiteHarness::form(number, 1, 2);
    form.run = RunId{70};
    form.participants = {{SiteId{1}, 5}};
    form.slices = {{SiteId{1}, {0, 4096}}};
    form.voters = {{SiteId{1}, "tokyo"}};
    static_cast<void>(s.hear(1, form));
    static_cast<void>(s.step(ExchangeComplete{RoundId{number}, AttemptId{1}, {kRight}}));
    static_cast<void>(s.hear(1, wire::Commit{TermId{1}, RunId{70}, RoundId{number}, AttemptId{1}, {SiteId{1}}}));
    static_cast<void>(s.step(Applied{RoundId{number}, kWrong}));
  }
  SiteHarness s;
};

TEST_F(SiteBranch, WhatABranchHasLearnedComesBackOntoTheTrunkAndCountsThere) {
  static_cast<void>(s.step(Trigger{8, 4}));
  const auto into = adopt(RunId{70}, 0, kRight, {{RunId{70}, RunId{7}, 0}}, {SiteId{1}});
  EXPECT_EQ(all<KeepFork>(into).size(), 1U);
  EXPECT_TRUE(all<Rebase>(into).empty());
  static_cast<void>(s.hear(1, wire::Recess{TermId{1}, RoundId{1}, "later"}));
  round_of_branch(1, 13);
  EXPECT_EQ(s.site.branch().at(0).samples, 5U);
  static_cast<void>(s.step(Trigger{20, 20}));
  s.link_to(0, "paris", 6);
  const auto back = adopt(RunId{7}, 3, Digest{9, 9}, {}, {SiteId{0}});
  ASSERT_EQ(all<Rebase>(back).size(), 1U);
  EXPECT_EQ(all<Rebase>(back)[0].base, Base::kFork);
  EXPECT_THAT(notes(back), HasSubstr("what the branch has learned counts in the next round"));
  EXPECT_EQ(sent<wire::Ready>(back).at(0).second.samples, 20U);
  EXPECT_TRUE(s.site.branch().empty());
}

TEST_F(SiteBranch, WhatTheMajorityMayHaveCountedIsNotContributedInTheBranch) {
  static_cast<void>(s.step(Trigger{8, 4}));
  s.link_to(0, "paris", 2);
  static_cast<void>(s.hear(1, SiteHarness::form(1, 1, 2)));
  static_cast<void>(s.hear(1, wire::Recess{TermId{1}, RoundId{1}, "no majority"}));
  static_cast<void>(s.step(Trigger{11, 5}));
  const auto into = adopt(RunId{70}, 0, kRight, {{RunId{70}, RunId{7}, 0}}, {SiteId{1}});
  ASSERT_EQ(all<Rebase>(into).size(), 1U);
  EXPECT_EQ(all<Rebase>(into)[0].base, Base::kSnapshot);
  EXPECT_EQ(sent<wire::Ready>(into).at(0).second.samples, 3U);
}

TEST_F(SiteBranch, ABranchThatIsComeBackToHasItsSamplesAlready) {
  static_cast<void>(s.step(Trigger{8, 4}));
  static_cast<void>(adopt(RunId{70}, 0, kRight, {{RunId{70}, RunId{7}, 0}}, {SiteId{1}}));
  static_cast<void>(s.hear(1, wire::Recess{TermId{1}, RoundId{1}, "later"}));
  static_cast<void>(s.step(Trigger{10, 5}));
  s.link_to(0, "paris", 6);
  const auto other = adopt(RunId{80}, 2, Digest{9, 9}, {{RunId{80}, RunId{7}, 50}}, {SiteId{0}});
  EXPECT_EQ(all<Rebase>(other).at(0).base, Base::kFork);
  static_cast<void>(s.hear(1, wire::Recess{TermId{1}, RoundId{3}, "later"}));
  static_cast<void>(s.step(Trigger{12, 6}));
  const auto again = adopt(RunId{70}, 1, Digest{8, 8}, {{RunId{70}, RunId{7}, 60}}, {SiteId{0}});
  EXPECT_EQ(all<Rebase>(again).at(0).base, Base::kParameters);
  EXPECT_EQ(sent<wire::Ready>(again).at(0).second.samples, 0U);
}

TEST_F(SiteBranch, ParametersThatMoveAreMovedAtTheNextTrigger) {
  static_cast<void>(s.step(Trigger{8, 4}));
  s.link_to(0, "paris", 2);
  static_cast<void>(s.hear(1, SiteHarness::form(1, 1, 2)));
  static_cast<void>(s.hear(1, wire::Recess{TermId{1}, RoundId{1}, "no majority"}));
  EXPECT_TRUE(all<Rebase>(adopt(RunId{70}, 0, kRight, {{RunId{70}, RunId{7}, 0}}, {SiteId{1}})).empty());
  const auto then = s.step(Trigger{11, 5});
  ASSERT_EQ(all<Rebase>(then).size(), 1U);
  EXPECT_EQ(all<Rebase>(then)[0].base, Base::kSnapshot);
  EXPECT_EQ(sent<wire::Ready>(then).at(0).second.samples, 3U);
}

TEST_F(SiteBranch, OneAtATimeLooksForTheTrunk) {
  SiteHarness first;
  first.become(0, {"paris", "tokyo"});
  for (SiteHarness* site : {&first, &s}) {
    static_cast<void>(site->step(Trigger{8, 4}));
    wire::Adopt adopt{TermId{1}, RunId{70}, RoundId{0}, {SiteId{0}, SiteId{1}}, kRight, wire::Counted::kNo, {}};
    adopt.branch = {{RunId{70}, RunId{7}, 0}};
    static_cast<void>(site->hear(1, adopt));
    static_cast<void>(site->step(AnchorInPlace{RunId{70}, RoundId{0}, kRight}));
    static_cast<void>(site->tick(seconds(59)));
    static_cast<void>(site->hear(1, wire::Heartbeat{1, false}));
    static_cast<void>(site->tick(seconds(2)));
    wire::Form form{TermId{1}, RunId{70}, RoundId{1}, AttemptId{1}, {{SiteId{0}, 0}, {SiteId{1}, 0}}, {}, {}};
    static_cast<void>(site->hear(1, form));
    static_cast<void>(site->hear(1, wire::Commit{TermId{1}, RunId{70}, RoundId{1}, AttemptId{1}, {}}));
    const auto applied = site->step(Applied{RoundId{1}, kRight});
    EXPECT_EQ(all<Hangup>(applied).size(), site == &first ? 1U : 0U);
  }
}

}  // namespace
}  // namespace collab::protocol
