// Office: what a successor takes over from the members, and what it has them confirm first.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using H = CoordinatorHarness;

const std::vector<wire::Voter> kThree{{SiteId{0}, "paris"}, {SiteId{1}, "tokyo"}, {SiteId{2}, "lima"}};
const std::vector<Digest> kMean{{5, 5}};

// An attempt of all three at round 1, under term 1.
wire::Form attempt() {
  return {TermId{1},
          RunId{7},
          RoundId{1},
          AttemptId{1},
          {{SiteId{0}, 1}, {SiteId{1}, 1}, {SiteId{2}, 1}},
          {{SiteId{0}, {0, 4096}}},
          kThree};
}

wire::Join member(const std::string& name, bool done, bool remembers = true) {
  wire::Join join = join_of(name, 3);
  join.offer = {RunId{7}, RoundId{0}, kRight};
  join.report = {TermId{1}, true, remembers, kThree, {}, {}};
  if (remembers) join.report.prepared = {{attempt(), done, done ? kMean : std::vector<Digest>{}}};
  return join;
}

// A site's side of an election: it grants what it is asked for, and confirms what it is told.
struct Sites {
  Sites() : c(config()) { c.invariants.coordinator_step("predecessor", Tick{}, {Send{LinkId{1}, attempt()}}); }
  static CoordinatorConfig config() {
    CoordinatorConfig config = H::defaults();
    config.fresh_run = RunId{70};
    return config;
  }
  H::Actions come(std::uint64_t link, wire::Join join) {
    said[link] = std::move(join);
    return answer(c.hear(link, said[link]));
  }
  H::Actions answer(H::Actions actions) {
    H::Actions seen;
    while (!actions.empty()) {
      const auto proposals = sent<wire::Propose>(actions);
      for (auto& action : actions) seen.push_back(std::move(action));
      actions.clear();
      for (const auto& [link, propose] : proposals) {
        wire::Join& join = said.at(link.value);
        join.report.granted = propose.term;
        if (!propose.confirms.empty()) {
          ++told;
          if (mute.count(link.value) != 0) continue;
          join.report.prepared.resize(1);
          join.report.prepared.push_back(propose.confirms[0]);
        }
        for (auto& action : c.hear(link.value, wire::Grant{propose.term, join.offer, join.report})) {
          actions.push_back(std::move(action));
        }
      }
    }
    return seen;
  }
  H c;
  std::map<std::uint64_t, wire::Join> said;
  std::set<std::uint64_t> mute;  // do not answer what they are to confirm
  int told = 0;
};

TEST(Office, WhatAllHereWereDoneWithIsConfirmedByMostBeforeItIsCommitted) {
  Sites sites;
  sites.mute = {2};
  static_cast<void>(sites.come(1, member("paris", true)));
  const auto asked = sites.come(2, member("tokyo", true));
  EXPECT_EQ(sites.told, 2);
  EXPECT_TRUE(sent<wire::Commit>(asked).empty()) << "only one of three has confirmed it";
  EXPECT_TRUE(sent<wire::Welcome>(asked).empty());
  wire::Join tokyo = sites.said.at(2);
  tokyo.report.prepared.push_back({attempt(), false, kMean, tokyo.report.granted});
  const auto commits =
      sent<wire::Commit>(sites.c.hear(2, wire::Grant{tokyo.report.granted, tokyo.offer, tokyo.report}));
  ASSERT_EQ(commits.size(), 2U);
  EXPECT_EQ(commits[0].second.attempt, AttemptId{1});
}

// Started again, it founded a swarm of its own, and knows what it has promised there: of this one it has forgotten all.
TEST(Office, WhoRemembersAnotherRunIsWaitedForAsOneThatForgot) {
  Sites sites;
  static_cast<void>(sites.come(1, member("paris", true)));
  wire::Join other = join_of("tokyo", 3);
  other.offer = {RunId{8}, RoundId{0}, kRight};
  other.report = {TermId{1}, true, true, {{SiteId{0}, "tokyo"}}, {}, {}};
  EXPECT_TRUE(sent<wire::Welcome>(sites.come(2, other)).empty()) << "half of those who remember are not here";
  const auto later = sites.answer(sites.c.pass(seconds(61)));
  const auto welcomes = sent<wire::Welcome>(later);
  ASSERT_EQ(welcomes.size(), 2U);
  EXPECT_GT(welcomes[0].second.term.value, 64U) << "others may have granted some terms since";
}

// What its predecessor agreed on may have been for somebody who is not back yet: that interval is not cut short.
TEST(Office, ThePaceThatWasToldLastHoldsUntilTheFirstCommit) {
  Sites sites;
  static_cast<void>(sites.come(1, member("paris", true)));
  const auto begun = sites.come(2, member("tokyo", true));
  const auto rosters = sent<wire::Roster>(begun);
  ASSERT_FALSE(rosters.empty());
  for (const auto& [link, roster] : rosters) EXPECT_EQ(roster.intervals, 0U);
  EXPECT_EQ(sent<wire::Roster>(sites.come(3, member("lima", true))).at(0).second.intervals, 0U);
}

TEST(Office, BudgetsAreKnownFromWhoComesBack) {
  Sites sites;
  wire::Join thrifty = member("paris", true);
  thrifty.report.budget = {.intervals = 5, .spent = 3'000'000'000, .total = 5'000'000'000, .rounds_left = 9};
  static_cast<void>(sites.come(1, thrifty));
  static_cast<void>(sites.come(2, member("tokyo", true)));
  EXPECT_THAT(sites.c.coordinator.status_json(sites.c.now), HasSubstr(R"("intervals":5)"));
  EXPECT_THAT(sites.c.coordinator.status_json(sites.c.now), HasSubstr(R"("egress_budget_gb":5,"rounds_left":9)"));
  const auto commits = sent<wire::Commit>(sites.come(3, member("lima", true)));
  ASSERT_FALSE(commits.empty());
  EXPECT_EQ(commits[0].second.intervals, 5U);
}

// Two successors in a row: the first commits the attempt to paris alone and dies, the second never hears of paris.
TEST(Office, WhatAPredecessorWasAboutToCommitIsCommittedThoughSomebodyWasNotDone) {
  Sites first;
  static_cast<void>(first.come(1, member("paris", true)));
  ASSERT_EQ(sent<wire::Commit>(first.come(2, member("tokyo", true))).size(), 2U);

  Sites second;
  static_cast<void>(second.come(1, first.said.at(2)));  // tokyo, which missed the commit
  const auto actions = second.come(2, member("lima", false));
  const auto commits = sent<wire::Commit>(actions);
  ASSERT_EQ(commits.size(), 1U) << notes(actions);
  EXPECT_EQ(commits[0].first, LinkId{1});
  EXPECT_EQ(commits[0].second.attempt, AttemptId{1});
}

TEST(Office, WithoutThatItIsGivenUp) {
  Sites sites;
  static_cast<void>(sites.come(1, member("tokyo", true)));
  const auto actions = sites.come(2, member("lima", false));
  EXPECT_THAT(notes(actions), HasSubstr("attempt 1 of round 1 is given up"));
  EXPECT_TRUE(sent<wire::Commit>(actions).empty());
  EXPECT_EQ(sites.told, 0);
}

// lima contributed and was lost; the attempt was formed again without waiting for it, and is not for it to rule out.
TEST(Office, WhoIsNotHereAnyMoreDoesNotRuleItOut) {
  for (const bool lost : {false, true}) {
    Sites sites;
    wire::Join paris = member("paris", true);
    wire::Form& form = paris.report.prepared[0].form;
    if (lost) form.attempt = AttemptId{2};
    if (lost) form.participants[2].here = false;
    sites.c.invariants.coordinator_step("predecessor", Tick{}, {Send{LinkId{1}, form}});
    static_cast<void>(sites.come(1, paris));
    const auto commits = sent<wire::Commit>(sites.come(3, member("lima", false)));
    ASSERT_EQ(commits.size(), lost ? 1U : 0U);
    if (!lost) continue;
    EXPECT_EQ(commits[0].second.attempt, AttemptId{2});
    EXPECT_EQ(commits[0].second.contributors.size(), 3U) << "what lima sent is in the mean";
  }
}

// It applied the commit and went on, on the other side of a cut line.
TEST(Office, WhoWentIntoABranchDoesNotRuleItOutEither) {
  for (const bool branched : {false, true}) {
    Sites sites;
    static_cast<void>(sites.come(1, member("paris", true)));
    wire::Join lima = member("lima", false);
    if (branched) {
      lima.offer = {RunId{9}, RoundId{2}, kWrong, {{RunId{9}, RunId{7}, 100}}};
      lima.report.prepared.clear();
      lima.report.voters = {{SiteId{2}, "lima"}};
    }
    static_cast<void>(sites.come(3, lima));
    const auto commits = sent<wire::Commit>(sites.come(2, member("tokyo", true)));
    EXPECT_EQ(commits.size(), branched ? 2U : 0U);
  }
}

// One of them had been started again, found nobody and trained to the end by itself; it will not come any more.
TEST(Office, ASwarmNobodyComesFromAnyMoreIsOutlived) {
  Sites sites;
  static_cast<void>(sites.c.hear(1, join_of("oslo")));
  static_cast<void>(sites.c.hear(1, wire::Adopted{RunId{70}, RoundId{0}, kRight}));
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const wire::Form form = sites.c.form(number, 1);
    static_cast<void>(sites.c.hear(1, H::done(form)));
    static_cast<void>(sites.c.hear(1, wire::Adopted{form.run, RoundId{number}, kRight}));
  }
  static_cast<void>(sites.c.close(1));
  static_cast<void>(sites.come(2, member("paris", false)));
  EXPECT_TRUE(sent<wire::Welcome>(sites.come(3, member("tokyo", false))).empty()) << "oslo may come back";
  const auto later = sites.answer(sites.c.pass(seconds(61)));
  const auto adopts = sent<wire::Adopt>(later);
  ASSERT_EQ(adopts.size(), 2U) << notes(later);
  EXPECT_EQ(adopts[0].second.run, RunId{7});
}

TEST(Office, WhoseMeanNobodyHereHoldsIsWaitedForThenTheyGoOnAsAnotherRun) {
  Sites first;
  static_cast<void>(first.come(1, member("paris", true)));
  static_cast<void>(first.come(2, member("tokyo", true)));
  wire::Join lima = member("lima", false);
  lima.report.prepared.push_back(first.said.at(1).report.prepared[1]);  // it had confirmed it
  wire::Join tokyo = first.said.at(2);
  tokyo.report.prepared[0] = {attempt(), false, {}};  // and this one lost it since

  Sites second;
  static_cast<void>(second.come(1, tokyo));
  const auto actions = second.come(2, lima);
  EXPECT_TRUE(sent<wire::Adopt>(actions).empty()) << "paris may bring round 1";
  const auto later = sent<wire::Adopt>(second.c.pass(seconds(61), {1, 2}));
  ASSERT_FALSE(later.empty());
  EXPECT_NE(later[0].second.run, RunId{7}) << "round 1 of run 7 is another one";
}

TEST(Office, WhereTooFewRememberTheyGoOnAsAnotherRun) {
  Sites sites;
  static_cast<void>(sites.come(1, member("paris", false)));
  EXPECT_TRUE(sent<wire::Welcome>(sites.come(2, member("tokyo", false, false))).empty())
      << "lima may know of more than these two";
  const auto later = sites.answer(sites.c.pass(seconds(61)));
  const auto adopts = sent<wire::Adopt>(later);
  ASSERT_EQ(adopts.size(), 2U) << notes(later);
  EXPECT_NE(adopts[0].second.run, RunId{7});
  EXPECT_TRUE(adopts[0].second.remembers);
}

TEST(Office, AllOfThemStartedAgainGoOnAtOnce) {
  Sites sites;
  static_cast<void>(sites.come(1, member("paris", false, false)));
  static_cast<void>(sites.come(2, member("tokyo", false, false)));
  const auto adopts = sent<wire::Adopt>(sites.come(3, member("lima", false, false)));
  ASSERT_EQ(adopts.size(), 3U);
  EXPECT_EQ(adopts[0].second.run, RunId{7});
}

TEST(Office, MembersStartedAgainAreNoMajorityByThemselves) {
  H c;  // its runs are 7, 8, ...
  c.gather({"paris", "tokyo", "lima"});
  static_cast<void>(c.close(1));
  static_cast<void>(c.close(2));
  wire::Join tokyo = member("tokyo", false, false);
  static_cast<void>(c.hear(4, tokyo));
  static_cast<void>(c.hear(4, wire::Adopted{RunId{7}, RoundId{0}, kRight}));
  static_cast<void>(c.hear(3, H::ready(1)));
  const auto actions = c.hear(4, H::ready(1));
  EXPECT_TRUE(sent<wire::Form>(actions).empty());
  EXPECT_EQ(sent<wire::Recess>(actions).size(), 2U);
  EXPECT_THAT(notes(actions), HasSubstr("too few of them have not been restarted since; missing: paris"));
  static_cast<void>(c.pass(seconds(61), {3, 4}));
  static_cast<void>(c.hear(3, H::ready(1)));
  const auto adopts = sent<wire::Adopt>(c.hear(4, H::ready(1)));
  ASSERT_EQ(adopts.size(), 2U) << "after the grace they go on as another run";
  EXPECT_NE(adopts[0].second.run, RunId{7});
}

// Sites hang up by themselves after a while, to look elsewhere; the grace is not to begin anew each time.
TEST(Office, WhoComesAndGoesIsPatientNoLongerThanTheGrace) {
  Sites sites;
  for (int visit = 0; visit < 3; ++visit) {
    static_cast<void>(sites.come(1, member("paris", false)));
    static_cast<void>(sites.come(2, member("tokyo", false, false)));
    static_cast<void>(sites.c.pass(seconds(20)));
    static_cast<void>(sites.c.close(1));
    static_cast<void>(sites.c.close(2));
    sites.c.now += seconds(2);
  }
  static_cast<void>(sites.come(1, member("paris", false)));
  EXPECT_EQ(sent<wire::Adopt>(sites.come(2, member("tokyo", false, false))).size(), 2U);
}

TEST(Office, AStrangerDoesNotDeposeWhomAMajorityHasPutIntoOffice) {
  Sites sites;
  static_cast<void>(sites.come(1, member("paris", true)));
  static_cast<void>(sites.come(2, member("tokyo", true)));
  wire::Join stranger = member("oslo", false);
  stranger.elements = 7;
  stranger.report.granted = TermId{99};
  const auto refused = sites.come(3, stranger);
  EXPECT_EQ(sent<wire::Refuse>(refused).size(), 1U);
  EXPECT_EQ(all<Hangup>(refused).size(), 1U) << "only its own link";
}

TEST(Office, WhoLeavesIsStruckFromTheMembershipOfAll) {
  H c;
  c.gather({"paris", "tokyo", "lima"});
  const auto parted = sent<wire::Parted>(c.hear(2, wire::Leave{"done"}));
  ASSERT_EQ(parted.size(), 2U);
  EXPECT_EQ(parted[0].second.site, "tokyo");
}

TEST(Office, AWordThatCrossedARecessIsCorrected) {
  H c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, H::ready(1, 10)));
  ASSERT_EQ(sent<wire::Form>(c.hear(2, H::ready(1, 20))).size(), 2U);
  EXPECT_TRUE(c.hear(2, H::ready(1, 20)).empty()) << "said twice";
  const auto forms = sent<wire::Form>(c.hear(2, H::ready(1, 30)));
  ASSERT_EQ(forms.size(), 2U);
  EXPECT_EQ(forms[0].second.participants[1].weight, 30);
}

}  // namespace
}  // namespace collab::protocol
