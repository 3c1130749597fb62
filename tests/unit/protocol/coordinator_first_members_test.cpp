// What is asked for before a swarm begins and does not come, and which sites found it: one site's word does not end the
// others.
#include <gmock/gmock.h>

#include <numeric>

#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Actions = CoordinatorHarness::Actions;

wire::Join helper_of(const std::string& name, std::uint32_t expected = 1) {
  wire::Join join = join_of(name, expected);
  join.helper = true;
  return join;
}

wire::Join naming(wire::Join join, const std::string& init_from) {
  join.init_from = init_from;
  return join;
}

std::vector<std::string> voters_in(const Actions& actions) {
  std::vector<std::string> names;
  const auto installs = sent<wire::InstallAnchor>(actions);
  if (installs.empty()) return names;
  for (const wire::Voter& voter : installs[0].second.voters) names.push_back(voter.name);
  return names;
}

class FirstMembers : public testing::Test {
 protected:
  Actions come(const std::vector<wire::Join>& joins) {
    Actions last;
    for (const wire::Join& join : joins) last = c.hear(++links, join);
    return last;
  }
  Actions pass(double time) {
    std::vector<std::uint64_t> alive(links);
    std::iota(alive.begin(), alive.end(), 1);
    return c.pass(seconds(time), alive);
  }
  CoordinatorHarness c;
  std::uint64_t links = 0;
};

TEST_F(FirstMembers, TheNumberOfSitesThatAHelperAsksForDoesNotCount) {
  const auto actions = come({join_of("paris", 2), helper_of("mallory", wire::kMaxSites), join_of("tokyo", 2)});
  EXPECT_EQ(sent<wire::InstallAnchor>(actions).size(), 3U);
}

TEST_F(FirstMembers, ASiteThatAHelperNamesIsNotWaitedFor) {
  const auto actions = come({join_of("paris", 2), naming(helper_of("mallory"), "rome"), join_of("tokyo", 2)});
  EXPECT_EQ(sent<wire::InstallAnchor>(actions).size(), 3U);
  CoordinatorHarness other;
  static_cast<void>(other.hear(1, naming(join_of("paris", 2), "paris")));
  EXPECT_THAT(refused_by(other.hear(2, naming(helper_of("mallory"), "rome"))), IsEmpty());
}

TEST_F(FirstMembers, AHelperIsNoFounder) {
  const auto actions = come({join_of("paris", 2), helper_of("mallory"), helper_of("mallory2"), join_of("tokyo", 2)});
  EXPECT_THAT(voters_in(actions), ElementsAre("paris", "tokyo"));
}

TEST_F(FirstMembers, HelpersMayFoundASwarmIfNoSiteTrains) {
  static_cast<void>(come({holding(helper_of("oslo"), {RunId{5}, RoundId{3}, kRight})}));
  EXPECT_THAT(voters_in(pass(301)), ElementsAre("oslo"));
}

TEST_F(FirstMembers, TheTimeRunsFromTheFirstSiteThatTrains) {
  static_cast<void>(come({helper_of("oslo")}));
  EXPECT_THAT(refused_by(pass(295)), IsEmpty());
  static_cast<void>(come({join_of("paris", 2)}));
  EXPECT_THAT(refused_by(pass(20)), IsEmpty());
  EXPECT_EQ(sent<wire::InstallAnchor>(come({join_of("tokyo", 2)})).size(), 3U);
}

TEST_F(FirstMembers, ASiteThatAsksForMoreSitesThanComeEndsAlone) {
  const auto last = come({join_of("paris", 2), join_of("mallory", 4096), join_of("tokyo", 2)});
  EXPECT_THAT(sent<wire::InstallAnchor>(last), IsEmpty());
  const auto actions = pass(301);
  EXPECT_THAT(refused_by(actions),
              ElementsAre(AllOf(HasSubstr("only 3 of 4096 sites are here"), HasSubstr("[join.too-few-sites]"))));
  EXPECT_EQ(sent<wire::Refuse>(actions)[0].first, LinkId{2});
  EXPECT_THAT(voters_in(actions), ElementsAre("paris", "tokyo"));
}

TEST_F(FirstMembers, ASiteThatNamesAMissingSiteEndsAlone) {
  const auto last = come({join_of("paris", 2), naming(join_of("mallory", 2), "rome"), join_of("tokyo", 2)});
  EXPECT_THAT(sent<wire::InstallAnchor>(last), IsEmpty());
  const auto actions = pass(301);
  EXPECT_THAT(refused_by(actions), ElementsAre(HasSubstr("[join.init-from-missing]")));
  EXPECT_EQ(sent<wire::Refuse>(actions)[0].first, LinkId{2});
  EXPECT_THAT(voters_in(actions), ElementsAre("paris", "tokyo"));
}

TEST_F(FirstMembers, AFalseNameAndAFalseNumberAtOnceEndOnlyTheirOwnSites) {
  static_cast<void>(come(
      {join_of("paris", 2), naming(join_of("mallory", 2), "rome"), join_of("tokyo", 2), join_of("mallory2", 4096)}));
  const auto actions = pass(301);
  EXPECT_THAT(refused_by(actions),
              ElementsAre(HasSubstr("[join.init-from-missing]"), HasSubstr("[join.too-few-sites]")));
  EXPECT_THAT(voters_in(actions), ElementsAre("paris", "tokyo"));
}

TEST_F(FirstMembers, AllSitesEndIfAllAskForMoreSitesThanCome) {
  static_cast<void>(come({join_of("paris", 4), join_of("tokyo", 4)}));
  const auto actions = pass(301);
  EXPECT_THAT(refused_by(actions), testing::SizeIs(2));
  EXPECT_THAT(refused_by(actions), testing::Each(AllOf(HasSubstr("only 2 of 4 sites are here (paris, tokyo)"),
                                                       HasSubstr("[join.too-few-sites]"))));
  EXPECT_EQ(c.coordinator.members(), 0U);
}

TEST_F(FirstMembers, TheNumberOfSitesThatTheCoordinatorAsksForCountsForAll) {
  CoordinatorConfig config = CoordinatorHarness::defaults();
  config.min_sites = 4;
  CoordinatorHarness own(config);
  static_cast<void>(own.hear(1, join_of("paris")));
  static_cast<void>(own.hear(2, join_of("tokyo")));
  EXPECT_THAT(refused_by(own.pass(seconds(301), {1, 2})), testing::SizeIs(2));
}

}  // namespace
}  // namespace collab::protocol
