// Which shares the coordinator gives by what the sites report of their lines, and when it moves them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/protocol/coordinator/model_reference.h"
#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using H = CoordinatorHarness;

struct Told {
  std::uint32_t up = 0;  // Mbit/s
  std::uint32_t down = 0;
};

wire::Join join_with(const std::string& name, std::uint32_t expected) {
  wire::Join join = join_of(name, expected);
  join.elements = 1 << 20;
  return join;
}

class Shares : public ::testing::Test {
 protected:
  explicit Shares(CoordinatorConfig config = H::defaults()) : c(std::move(config)) {}

  void gather(std::uint32_t sites, std::uint32_t hidden = UINT32_MAX) {
    for (std::uint32_t i = 0; i < sites; ++i) {
      wire::Join join = join_with("site" + std::to_string(i), sites);
      if (i == hidden) join.address.clear();
      static_cast<void>(c.hear(i + 1, join));
    }
    for (std::uint32_t i = 0; i < sites; ++i) {
      static_cast<void>(c.hear(i + 1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    }
  }
  // All are ready with these rates; what each owns of the vector.
  std::map<std::uint32_t, double> shares(std::uint64_t round, const std::vector<Told>& told) {
    for (std::uint32_t i = 0; i < told.size(); ++i) {
      wire::Ready ready = H::ready(round);
      ready.measured.up_kbit = 1000 * told[i].up;
      ready.measured.down_kbit = 1000 * told[i].down;
      last = c.hear(i + 1, ready);
    }
    const auto starts = sent<wire::StartAttempt>(last);
    if (starts.empty()) return {};
    return owned(starts.front().second);
  }
  std::map<std::uint32_t, double> owned(const wire::StartAttempt& of) {
    start = of;
    std::map<std::uint32_t, double> found;
    for (const wire::Slice& slice : of.slices) {
      found[slice.owner.value] += static_cast<double>(slice.range.size()) / (1 << 20);
    }
    return found;
  }
  void commit() {
    for (const auto& p : start.participants) static_cast<void>(c.hear(p.site.value + 1, H::done(start)));
    for (const auto& p : start.participants) {
      static_cast<void>(c.hear(p.site.value + 1, wire::AnchorInstalled{RunId{7}, start.round, kRight}));
    }
  }

  H c;
  wire::StartAttempt start;
  H::Actions last;
};

using Owned = std::map<std::uint32_t, double>;

TEST_F(Shares, AreEqualUntilSomebodyHasMeasured) {
  gather(4);
  EXPECT_EQ(shares(1, std::vector<Told>(4)), (Owned{{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}}));
  commit();
  EXPECT_EQ(shares(2, {{10, 0}, {10, 0}, {}, {}}), (Owned{{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}}))
      << "no site has a known rate down";
}

TEST_F(Shares, FollowTheRatesAndAreTold) {
  gather(4);
  EXPECT_EQ(shares(1, {{10, 10}, {10, 10}, {1000, 1000}, {10, 10}}), (Owned{{2, 1}}));
  EXPECT_THAT(notes(last), HasSubstr("[partition] round 1: by the rates the sites have measured, owners are "));
  const std::string status = c.coordinator.status_json(c.now);
  EXPECT_THAT(status, HasSubstr(R"("up_mbit":1000,"down_mbit":1000,"share":1,)"));
  EXPECT_THAT(status, HasSubstr(R"("up_mbit":10,"down_mbit":10,"share":0,)"));
}

TEST_F(Shares, StayIfMovingThemGainsLittle) {
  gather(3);
  const Owned first = shares(1, {{100, 100}, {100, 100}, {50, 50}});
  EXPECT_GT(first.at(0), 0.4);
  commit();
  EXPECT_EQ(shares(2, {{100, 100}, {90, 100}, {52, 50}}), first);
  EXPECT_THAT(notes(last), Not(HasSubstr("[partition]")));
  commit();
  EXPECT_NE(shares(3, {{20, 20}, {100, 100}, {100, 100}}), first);
  EXPECT_THAT(notes(last), HasSubstr("[partition] round 3"));
}

TEST_F(Shares, AreEqualIfAllLinesAreNearlyEqual) {
  gather(4);
  EXPECT_EQ(shares(1, {{100, 95}, {98, 100}, {101, 99}, {100, 100}}),
            (Owned{{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}}));
}

// Parts of a whole do not add up to it exactly.
TEST_F(Shares, DoNotMoveFromEqualToEqual) {
  gather(7);
  std::vector<Told> alike(7, Told{97, 101});
  for (std::uint64_t round = 1; round < 6; ++round) {
    static_cast<void>(shares(round, alike));
    EXPECT_THAT(notes(last), Not(HasSubstr("[partition]")));
    commit();
    alike[round].up += 2;
  }
}

// In a first exchange one link may have the better of another, and both lines look other than they are.
TEST_F(Shares, AreEqualAgainOnceAllLinesNearlyAre) {
  gather(4);
  const Owned equal{{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}};
  EXPECT_NE(shares(1, {{60, 100}, {95, 100}, {95, 100}, {105, 100}}), equal);
  commit();
  EXPECT_EQ(shares(2, {{98, 100}, {97, 100}, {96, 100}, {105, 100}}), equal);
  EXPECT_THAT(notes(last), HasSubstr("[partition] round 2"));
}

TEST_F(Shares, TakeADownlinkForAsFastAsItsUplinkWithinMeasuredRates) {
  gather(4);
  EXPECT_EQ(shares(1, {{20, 100}, {20, 100}, {100, 20}, {20, 100}}), (Owned{{2, 1}}));
}

TEST_F(Shares, DoNotMoveWithinARound) {
  gather(3);
  const Owned first = shares(1, {{100, 100}, {100, 100}, {50, 50}});
  wire::Ready other = H::ready(1, 2);
  other.measured.up_kbit = other.measured.down_kbit = 1000;  // said with other samples: another attempt is formed
  const auto again = sent<wire::StartAttempt>(c.hear(1, other));
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(again[0].second.attempt, AttemptId{2});
  EXPECT_EQ(owned(again[0].second), first);
}

TEST_F(Shares, GoFromALostOwnerToTheOthers) {
  gather(3);
  static_cast<void>(shares(1, {{100, 100}, {100, 100}, {80, 80}}));
  const auto again = sent<wire::StartAttempt>(c.close(1));
  ASSERT_EQ(again.size(), 2U);
  const Owned left = owned(again[0].second);
  EXPECT_NEAR(left.at(1) + left.at(2), 1, 1e-9);
  EXPECT_GT(left.at(1), left.at(2));
  const auto alone = c.close(2);
  for (const auto& [link, skip_round] : sent<wire::RoundSkipped>(alone)) EXPECT_EQ(link, LinkId{3});
}

TEST_F(Shares, AreChosenAnewWhenTheOnlyOwnerIsLost) {
  gather(4);
  EXPECT_EQ(shares(1, {{10, 10}, {10, 10}, {1000, 1000}, {10, 10}}), (Owned{{2, 1}}));
  const auto again = sent<wire::StartAttempt>(c.close(3));
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(owned(again[0].second).size(), 3U);
}

TEST_F(Shares, AreZeroForASiteThatCannotBeDialledHoweverFast) {
  gather(3, 1);
  EXPECT_EQ(shares(1, {{10, 10}, {1000, 1000}, {10, 10}}), (Owned{{0, 0.5}, {2, 0.5}}));
}

TEST_F(Shares, CountANewSiteAsTheSlowest) {
  gather(4);
  const Owned owned = shares(1, {{100, 100}, {400, 400}, {100, 100}, {}});
  EXPECT_EQ(owned.count(3), owned.count(0));
  EXPECT_GT(owned.at(1), 0.5);
}

TEST_F(Shares, ARateIsRememberedWhileASiteHasNoOther) {
  gather(3);
  const std::vector<Told> told{{10, 10}, {1000, 1000}, {10, 10}};
  EXPECT_EQ(shares(1, told), (Owned{{1, 1}}));
  commit();
  EXPECT_EQ(shares(2, {{}, {}, {}}), (Owned{{1, 1}}));
}

TEST_F(Shares, CountWithTheCodecOfEachWay) {
  // With small means an owner sends less than a site that owns nothing.
  for (std::uint32_t i = 0; i < 3; ++i) {
    wire::Join join = join_with("site" + std::to_string(i), 3);
    join.settings = {{"codec", "fp32/int2"}};
    static_cast<void>(c.hear(i + 1, join));
  }
  for (std::uint32_t i = 0; i < 3; ++i)
    static_cast<void>(c.hear(i + 1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  // So the one with the thinnest way out owns all.
  EXPECT_EQ(shares(1, {{10, 1000}, {100, 100}, {100, 100}}), (Owned{{0, 1}}));
}

class EqualShares : public Shares {
 protected:
  EqualShares()
      : Shares([] {
          CoordinatorConfig config = H::defaults();
          config.equal_shares = true;
          return config;
        }()) {}
};

TEST_F(EqualShares, IgnoreTheRates) {
  gather(2);
  EXPECT_EQ(shares(1, {{1, 1}, {1000, 1000}}), (Owned{{0, 0.5}, {1, 0.5}}));
}

// ---- helpers ---------------------------------------------------------------------------------------

class Helped : public Shares {
 protected:
  wire::Join helper() {
    wire::Join join = join_with("helper", 1);
    join.helper = true;
    join.model.clear();
    return join;
  }
  // Two sites that cannot be dialled on links 1 and 2, a helper on link 3.
  void gather_with_helper() {
    gather_hidden();
    const auto actions = c.hear(3, helper());
    ASSERT_EQ(sent<wire::Welcome>(actions).size(), 1U);
    static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  }
  void gather_hidden() {
    for (std::uint64_t link = 1; link <= 2; ++link) {
      wire::Join join = join_with("site" + std::to_string(link), 2);
      join.address.clear();
      static_cast<void>(c.hear(link, join));
    }
    for (std::uint64_t link = 1; link <= 2; ++link) {
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    }
  }
};

TEST_F(Helped, TheHelperOwnsAllIfNoSiteCanBeDialled) {
  gather_with_helper();
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(3, H::ready(1, 0))).empty());
  static_cast<void>(c.hear(1, H::ready(1)));
  const auto starts = sent<wire::StartAttempt>(c.hear(2, H::ready(1)));
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_EQ(owned(starts[0].second), (Owned{{2, 1}}));
  EXPECT_EQ(start.participants[2].weight, 0);
  EXPECT_EQ(start.voters.size(), 3U) << "it is a voter like any other";
}

TEST_F(Helped, AHelperThatIsReadyStartsNoClockAndIsNoMajority) {
  gather_with_helper();
  static_cast<void>(c.hear(3, H::ready(1, 0)));
  EXPECT_EQ(notes(c.pass(seconds(4000), {1, 2, 3})), "") << "nobody waits";
  static_cast<void>(c.hear(1, H::ready(1)));
  const auto passed = c.pass(seconds(100), {1, 2, 3});
  EXPECT_TRUE(sent<wire::StartAttempt>(passed).empty()) << "one of two sites is no majority, with the helper neither";
}

TEST_F(Helped, ARoundWaitsForAHelperAsForASite) {
  gather_with_helper();
  static_cast<void>(c.hear(1, H::ready(1)));
  EXPECT_TRUE(sent<wire::StartAttempt>(c.hear(2, H::ready(1))).empty());
  EXPECT_EQ(sent<wire::StartAttempt>(c.hear(3, H::ready(1, 0))).size(), 3U);
}

TEST_F(Helped, ALoneSurvivorOfTwoContinuesWithTheHelper) {
  gather_with_helper();
  for (const std::uint64_t round : {1, 2}) {
    for (const std::uint64_t link : {3, 1, 2}) last = c.hear(link, H::ready(round, link == 3 ? 0 : 1));
    ASSERT_EQ(sent<wire::StartAttempt>(last).size(), 3U);
    start = sent<wire::StartAttempt>(last).front().second;
    if (round == 1) commit();
  }
  const auto again = sent<wire::StartAttempt>(c.close(2));
  ASSERT_EQ(again.size(), 2U) << "to the one and the helper";
  EXPECT_EQ(owned(again[0].second), (Owned{{2, 1}}));
}

TEST_F(Helped, ASiteThatCannotReachTheAnchorWaitsForAHelper) {
  for (std::uint64_t link = 1; link <= 2; ++link) {
    wire::Join join = join_with("site" + std::to_string(link), 2);
    join.address.clear();
    last = c.hear(link, join);
  }
  ASSERT_EQ(sent<wire::InstallAnchor>(last).size(), 1U) << "who has it";
  EXPECT_THAT(notes(last), HasSubstr("site2 cannot take the anchor from site1: neither can be dialled; run `collab"));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  const auto to_helper = sent<wire::InstallAnchor>(c.hear(3, helper()));
  ASSERT_EQ(to_helper.size(), 1U);
  EXPECT_EQ(to_helper[0].first, LinkId{3});
  const auto at_last = sent<wire::InstallAnchor>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  ASSERT_EQ(at_last.size(), 1U);
  EXPECT_EQ(at_last[0].first, LinkId{2});
  EXPECT_EQ(at_last[0].second.sources, std::vector<SiteId>{SiteId{2}});
}

TEST_F(Helped, AJoinerWithoutAHelperIsSentToTheSourceAfterAGrace) {
  for (std::uint64_t link = 1; link <= 2; ++link) {
    wire::Join join = join_with("site" + std::to_string(link), 2);
    join.address.clear();
    static_cast<void>(c.hear(link, join));
  }
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.pass(seconds(50), {1, 2})).empty());
  const auto told = sent<wire::InstallAnchor>(c.pass(seconds(20), {1, 2}));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].second.sources, std::vector<SiteId>{SiteId{0}});
}

TEST_F(Helped, AHelperGoesWithTheLastSiteAndLeavesNothingBehind) {
  gather_with_helper();
  static_cast<void>(c.hear(1, wire::Leave{"the end"}));
  const auto actions = c.hear(2, wire::Leave{"the end"});
  const auto refused = sent<wire::Refuse>(actions);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].first, LinkId{3});
  EXPECT_THAT(refused[0].second.reason, HasSubstr("[join.swarm-ended]"));
  EXPECT_EQ(c.coordinator.members(), 0U);
  static_cast<void>(c.hear(5, join_with("site1", 1)));
  EXPECT_EQ(c.coordinator.members(), 1U) << "the next swarm may begin";
}

TEST_F(Helped, AHelperAloneBeginsNoSwarm) {
  static_cast<void>(c.hear(3, helper()));
  const auto actions = c.hear(1, join_with("site1", 1));
  const auto installs = sent<wire::InstallAnchor>(actions);
  ASSERT_EQ(installs.size(), 2U);
  for (const auto& [link, install] : installs) EXPECT_EQ(install.sources, std::vector<SiteId>{SiteId{0}});
}

// An index is for a site to ask for, even if a helper comes first.
TEST_F(Helped, AHelperTakesNoIndexThatASiteMayAskFor) {
  static_cast<void>(c.hear(1, join_with("site1", 2)));
  static_cast<void>(c.hear(3, helper()));
  wire::Join second = join_with("site2", 2);
  second.index = 1;
  const auto welcomes = sent<wire::Welcome>(c.hear(2, second));
  ASSERT_EQ(welcomes.size(), 1U);
  EXPECT_EQ(welcomes[0].second.site, SiteId{1});
}

TEST_F(Helped, AHelpersModelIsNotComparedItsSettingsAre) {
  gather_hidden();
  wire::Join other = helper();
  other.settings = {{"codec", "int8"}, {"outer", "average"}};
  const auto refused = sent<wire::Refuse>(c.hear(3, other));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("[join.setting-mismatch]"));
}

TEST_F(Helped, AStatusReportTellsWhatAHelperJoinsWith) {
  const auto before = sent<wire::StatusReport>(c.hear(9, wire::StatusQuery{}));
  EXPECT_EQ(before.at(0).second.elements, 0U);
  gather_hidden();
  const auto after = sent<wire::StatusReport>(c.hear(9, wire::StatusQuery{}));
  EXPECT_EQ(after.at(0).second.elements, 1U << 20);
  EXPECT_EQ(after.at(0).second.settings, join_of("x").settings);
  EXPECT_TRUE(after.at(0).second.tensors.empty()) << "no setting goes by them";
}

TEST(ModelReference, GivesTheTensorsOnlyIfASettingNeedsThem) {
  wire::Join join = join_of("paris");
  join.model = {{"wte.weight", "float32", {100, 8}, TensorKind::kAveraged, {}},
                {"mask", "float32", {64}, TensorKind::kLeftOut, {}},
                {"lm_head", "float32", {8}, TensorKind::kFrozen, {}},
                {"ln.weight", "float32", {8}, TensorKind::kAveraged, {}},
                {"huge", "float32", {1ULL << 30, 1ULL << 30, 1ULL << 30}, TensorKind::kAveraged, {}}};
  const std::vector<wire::TensorLength> all{{"wte.weight", 800}, {"ln.weight", 8}, {"huge", wire::kMaxElements}};
  for (const auto& [key, value, needs] :
       std::vector<std::tuple<std::string, std::string, bool>>{{"keep_fp16", "none", false},
                                                               {"keep_fp16", "small", true},
                                                               {"outer_optimizer", "nesterov", false},
                                                               {"outer_optimizer", "rda", true}}) {
    join.settings = {{"codec", "int8"}, {key, value}};
    EXPECT_EQ(ModelReference(join).tensors(), needs ? all : std::vector<wire::TensorLength>{}) << key << "=" << value;
  }
  join.model.assign(wire::kMaxTensorsBytes / 200, {std::string(200, 'w'), "float32", {8}, TensorKind::kAveraged, {}});
  EXPECT_TRUE(ModelReference(join).tensors().empty()) << "they do not fit into a message";
}

}  // namespace
}  // namespace collab::protocol
