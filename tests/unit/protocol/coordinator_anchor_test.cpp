// Which site's parameters round 0 has if no site holds an anchor. Which sites are waited for, and which are told that
// theirs were not taken.
#include <gmock/gmock.h>

#include "core/protocol/formatting.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr Digest kOther{3, 3};

wire::Join fresh(const std::string& name, std::uint32_t expected = 1, Digest digest = kRight) {
  wire::Join join = join_of(name, expected);
  join.offer.digest = digest;
  return join;
}
wire::Join resumed(const std::string& name, std::uint32_t expected = 1, Digest digest = kOther) {
  wire::Join join = fresh(name, expected, digest);
  join.resumed = true;
  return join;
}
wire::Join fetching(wire::Join join, const std::string& init_from) {
  join.init_from = init_from;
  return join;
}

class FirstAnchor : public testing::Test {
 protected:
  // They come in this order, on links 1, 2, ...: what the coordinator does when the last of them has come.
  CoordinatorHarness::Actions come(const std::vector<wire::Join>& joins) {
    CoordinatorHarness::Actions last;
    for (const wire::Join& join : joins) last = c.hear(++links, join);
    return last;
  }
  // Whom the first anchor is taken from, by all alike; none: it is not chosen yet.
  static std::optional<SiteId> chosen(const CoordinatorHarness::Actions& actions) {
    std::set<std::vector<SiteId>> sources;
    for (const auto& [link, install] : sent<wire::InstallAnchor>(actions)) sources.insert(install.sources);
    if (sources.empty()) return std::nullopt;
    EXPECT_EQ(sources.size(), 1U);
    return sources.begin()->at(0);
  }
  static std::vector<std::pair<LinkId, std::string>> warned(const CoordinatorHarness::Actions& actions) {
    std::vector<std::pair<LinkId, std::string>> found;
    for (const auto& [link, notice] : sent<wire::Notice>(actions)) {
      if (notice.event == "state-not-used") found.emplace_back(link, notice.text);
    }
    return found;
  }

  CoordinatorHarness c;
  std::uint64_t links = 0;
};

TEST_F(FirstAnchor, AmongFreshSitesTheLowestWins) {
  const auto actions = come({fresh("paris", 2), fresh("tokyo", 2, kOther)});
  EXPECT_EQ(chosen(actions), SiteId{0});
  EXPECT_THAT(notes(actions), HasSubstr("is taken from paris, the lowest site, because the sites' parameters differ"));
  EXPECT_THAT(warned(actions), IsEmpty()) << "nothing is lost but a seed";
}

TEST_F(FirstAnchor, SitesThatBroughtTheSameModelAreNotWarned) {
  const auto actions = come({fresh("paris", 2), resumed("tokyo", 2, kRight)});
  EXPECT_EQ(chosen(actions), SiteId{1});
  EXPECT_THAT(notes(actions), AllOf(HasSubstr("is taken from tokyo\n"), Not(HasSubstr("differ"))));
  EXPECT_THAT(warned(actions), IsEmpty());
}

TEST_F(FirstAnchor, AResumedSiteGoesBeforeTheFirstToCome) {
  const auto actions = come({fresh("paris", 2), resumed("tokyo", 2)});
  EXPECT_EQ(chosen(actions), SiteId{1});
  EXPECT_EQ(sent<wire::InstallAnchor>(actions)[0].second.digest, kOther);
  EXPECT_THAT(notes(actions), HasSubstr("is taken from tokyo, the lowest of the sites that had loaded a state, because "
                                        "the sites' parameters differ"));
  EXPECT_THAT(warned(actions), IsEmpty());
}

TEST_F(FirstAnchor, TheLowestResumedSiteWinsAndTheOtherIsToldTheRemedy) {
  const auto actions = come({fresh("lima", 3), resumed("paris", 3), resumed("tokyo", 3, kWrong)});
  EXPECT_EQ(chosen(actions), SiteId{1});
  const auto told = warned(actions);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].first, LinkId{3});
  EXPECT_THAT(told[0].second,
              AllOf(HasSubstr("the swarm does not start from the state that tokyo had loaded"),
                    HasSubstr("paris, the lowest of the sites that had loaded a state, has the parameters"),
                    HasSubstr("start all sites with COLLAB_INIT_FROM=tokyo")));
  EXPECT_THAT(notes(actions), HasSubstr("[state-not-used] " + told[0].second)) << "the coordinator's log says it too";
}

TEST_F(FirstAnchor, TheNamedSiteGoesBeforeAResumedOne) {
  const auto actions = come({resumed("paris", 3), fresh("tokyo", 3), fetching(fresh("lima", 3), "tokyo")});
  EXPECT_EQ(chosen(actions), SiteId{1});
  EXPECT_THAT(notes(actions),
              HasSubstr("is taken from tokyo, named by COLLAB_INIT_FROM, because the sites' parameters differ"));
  ASSERT_EQ(warned(actions).size(), 1U);
  EXPECT_THAT(warned(actions)[0].second, HasSubstr("COLLAB_INIT_FROM=paris"));
}

TEST_F(FirstAnchor, TheCoordinatorItselfMayNameTheSite) {
  CoordinatorConfig config = CoordinatorHarness::defaults();
  config.init_from = "tokyo";
  CoordinatorHarness own(config);
  EXPECT_FALSE(chosen(own.hear(1, resumed("paris")))) << "it waits for tokyo although one site is enough";
  EXPECT_EQ(chosen(own.hear(2, fresh("tokyo"))), SiteId{1});
}

// It has trained this generation to its end, and the others have lost what came of it: each would wait for the other.
TEST_F(FirstAnchor, ANamedSiteThatIsAtALaterGenerationIsNotWaitedFor) {
  EXPECT_FALSE(chosen(come({fetching(fresh("paris"), "tokyo")})));
  wire::Join ahead = fresh("tokyo");
  ahead.generation = 2;
  EXPECT_EQ(chosen(come({ahead})), SiteId{0});
}

TEST_F(FirstAnchor, AnAnchorThatIsHeldGoesBeforeAll) {
  wire::Join lima = fresh("lima", 3, kWrong);
  lima.offer.run = RunId{5};
  const auto actions = come({resumed("paris", 3), fetching(fresh("tokyo", 3), "tokyo"), lima});
  EXPECT_EQ(chosen(actions), SiteId{2});
  EXPECT_EQ(sent<wire::InstallAnchor>(actions)[0].second.run, RunId{7}) << "it is unknown which sites agreed on run 5";
  EXPECT_EQ(sent<wire::InstallAnchor>(actions)[0].second.digest, kWrong);
  ASSERT_EQ(warned(actions).size(), 1U);
  EXPECT_THAT(warned(actions)[0].second, HasSubstr("lima holds an anchor"));
}

TEST_F(FirstAnchor, AHolderOfAnAnchorDoesNotWaitForTheNamedSite) {
  EXPECT_FALSE(chosen(come({fetching(fresh("paris"), "rome")})));
  wire::Join tokyo = fresh("tokyo");
  tokyo.offer = {RunId{5}, RoundId{3}, kWrong};
  EXPECT_EQ(chosen(come({tokyo})), SiteId{1});
}

TEST_F(FirstAnchor, AllThatWaitForTheNamedSiteAreToldSo) {
  EXPECT_FALSE(chosen(come({fetching(fresh("paris", 2), "rome"), fresh("tokyo", 2)})));
  EXPECT_THAT(c.coordinator.status_json(c.now), HasSubstr("waiting for rome (COLLAB_INIT_FROM)"));
  const auto actions = c.pass(seconds(11), {1, 2});
  const std::string text =
      "round 0: 2 of 2 sites are here (paris, tokyo); waiting for rome (COLLAB_INIT_FROM, from paris)";
  EXPECT_THAT(notes(actions), HasSubstr("[waiting] " + text));
  const auto told = sent<wire::Notice>(actions);
  ASSERT_EQ(told.size(), 2U);
  for (const auto& [link, notice] : told) {
    EXPECT_EQ(notice.event, kWait);
    EXPECT_THAT(notice.text, HasSubstr(text));
  }
  EXPECT_EQ(chosen(come({fresh("rome", 2, kOther)})), SiteId{2});
}

TEST_F(FirstAnchor, ANameThatNeverComesIsNamedInTheError) {
  EXPECT_FALSE(chosen(come({fetching(fresh("paris", 2), "rome"), fetching(fresh("tokyo", 2), "rome")})));
  const auto actions = c.pass(seconds(301), {1, 2});
  EXPECT_FALSE(chosen(actions)) << "most are here, but not whom they wait for";
  const auto refused = sent<wire::Refuse>(actions);
  ASSERT_EQ(refused.size(), 2U);
  for (const auto& [link, refuse] : refused) {
    EXPECT_THAT(refuse.reason,
                AllOf(HasSubstr("the parameters of rome (COLLAB_INIT_FROM, from paris), but no site of that name has "
                                "joined within 300 s (COLLAB_JOIN_TIMEOUT); 2 of 2 sites are here (paris, tokyo)"),
                      HasSubstr("start that site, or name another one")));
  }
  EXPECT_EQ(c.coordinator.members(), 0U);
}

TEST_F(FirstAnchor, AHelperWithTheNamedSitesNameIsNotChosen) {
  wire::Join helper = fresh("rome");
  helper.helper = true;
  EXPECT_FALSE(chosen(come({fetching(fresh("paris"), "rome"), helper})));
}

TEST_F(FirstAnchor, ASiteThatNamesAnotherSiteThanTheSwarmIsRefused) {
  static_cast<void>(come({fetching(fresh("paris", 3), "paris"), fresh("tokyo", 3)}));
  const auto refused = sent<wire::Refuse>(come({fetching(fresh("lima", 3), "rome")}));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].first, LinkId{3});
  EXPECT_THAT(refused[0].second.reason,
              testing::AllOf(HasSubstr("this site has rome, the swarm (from paris) has paris"),
                             testing::EndsWith("[join.init-from-mismatch]")));
  EXPECT_EQ(chosen(come({fetching(fresh("lima", 3), "paris")})), SiteId{0}) << "it has been put right";
}

TEST_F(FirstAnchor, TheCoordinatorsOwnWordIsNotContradicted) {
  CoordinatorConfig config = CoordinatorHarness::defaults();
  config.init_from = "tokyo";
  CoordinatorHarness own(config);
  const auto refused = sent<wire::Refuse>(own.hear(1, fetching(fresh("paris"), "paris")));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("[join.init-from-mismatch]"));
  EXPECT_EQ(own.coordinator.members(), 0U);
  EXPECT_EQ(chosen(own.hear(2, fetching(fresh("tokyo"), "tokyo"))), SiteId{0}) << "others come in all the same";
}

TEST_F(FirstAnchor, OnceThereIsAnAnchorAnybodyMayNameAnybody) {
  static_cast<void>(come({fetching(fresh("paris"), "paris")}));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  const auto actions = come({fetching(fresh("tokyo", 1, kOther), "rome")});
  EXPECT_THAT(sent<wire::Refuse>(actions), IsEmpty());
  EXPECT_EQ(chosen(actions), SiteId{0});
}

TEST_F(FirstAnchor, ALateResumedSiteIsToldBothRemedies) {
  static_cast<void>(come({fresh("paris")}));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  const auto told = warned(come({resumed("tokyo")}));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].first, LinkId{2});
  EXPECT_THAT(told[0].second,
              AllOf(HasSubstr("the swarm already had an anchor, of run 7 round 0, when it joined"),
                    HasSubstr("start all sites with COLLAB_INIT_FROM=tokyo"), HasSubstr("COLLAB_MIN_SITES=N")));
}

TEST_F(FirstAnchor, ASiteWithNothingToLoseIsNotWarned) {
  static_cast<void>(come({fresh("paris")}));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  EXPECT_THAT(warned(come({resumed("tokyo", 1, kRight)})), IsEmpty()) << "it had loaded what the swarm has";
  EXPECT_THAT(warned(come({fresh("lima", 1, kOther)})), IsEmpty()) << "it had loaded nothing";
  wire::Join back = resumed("rome");
  back.offer.run = RunId{7};
  EXPECT_THAT(warned(come({back})), IsEmpty()) << "it has an anchor, and what it trained since counts";
}

// A site's own lines while it waits, and what it makes of what it is told.
TEST(FirstAnchorAtASite, ASiteLogsTheNamedSiteThatItWaitsFor) {
  SiteHarness s;
  s.join_as(0, {"paris"}, fetching(fresh("paris"), "rome"));
  EXPECT_THAT(s.site.waiting_for(s.now), HasSubstr("and for rome, COLLAB_INIT_FROM"));
  static_cast<void>(s.hear(1, SiteHarness::roster({"paris", "rome"})));
  EXPECT_THAT(s.site.waiting_for(s.now), Not(HasSubstr("COLLAB_INIT_FROM")));
}

TEST(FirstAnchorAtASite, AWaitIsNoWarningALostStateIs) {
  SiteHarness s;
  s.join_as(0, {"paris"}, resumed("paris"));
  const auto level = [&](const std::string& event) {
    const auto told = all<Note>(s.hear(1, wire::Notice{event, "words"}));
    EXPECT_EQ(told.size(), 1U);
    return told.at(0).level;
  };
  EXPECT_EQ(level(std::string(kWait)), Note::Level::kInfo);
  EXPECT_EQ(level("state-not-used"), Note::Level::kWarning);
}

TEST(FirstAnchorAtASite, ANoticeOfAnyOtherEventIsOfOneKind) {
  SiteHarness s;
  s.join_as(0, {"paris"}, resumed("paris"));
  const auto kind = [&](const std::string& event) {
    return all<Note>(s.hear(1, wire::Notice{event, "words"})).at(0).event;
  };
  EXPECT_EQ(kind("state-not-used"), "state-not-used");
  EXPECT_EQ(kind("x1"), "notice");
  EXPECT_EQ(kind("round"), "notice") << "a site tells of its rounds itself";
}

}  // namespace
}  // namespace collab::protocol
