// Which sites are let in, which are refused and in which words, and which anchor the swarm starts from.
#include <gmock/gmock.h>

#include "core/base/knobs.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The reason a join is refused with after paris has joined; empty when it is let in.
std::string refusal(const wire::Join& join) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_of("paris")));
  auto actions = c.hear(2, join);
  if (actions.empty()) actions = c.hear(1, wire::Heartbeat{});  // a claim to a living member's name
  const auto refusals = sent<wire::Refuse>(actions);
  if (refusals.empty()) return {};
  EXPECT_EQ(refusals[0].first, LinkId{2});
  EXPECT_EQ(all<CloseLink>(actions).size(), 1U);
  EXPECT_THAT(notes(actions), HasSubstr("[refused] " + join.site));
  return refusals[0].second.reason;
}

wire::Join tokyo() { return join_of("tokyo"); }

TEST(CoordinatorJoin, WelcomesAndTellsTheRoster) {
  CoordinatorHarness c;
  const auto actions = c.hear(1, join_of("paris", 2));
  ASSERT_EQ(sent<wire::Welcome>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::Welcome>(actions)[0].second, (wire::Welcome{TermId{1}, SiteId{0}, 1000, 60000}));
  const auto both = c.hear(2, join_of("tokyo", 2));
  ASSERT_EQ(sent<wire::Roster>(both).size(), 2U);
  EXPECT_EQ(sent<wire::Roster>(both)[0].second.members.size(), 2U);
  EXPECT_EQ(c.coordinator.member_names(), (std::vector<std::string>{"paris", "tokyo"}));
}

TEST(CoordinatorJoin, GivesTheIndexAskedForOrTheLowestFree) {
  CoordinatorHarness c;
  wire::Join fixed = join_of("paris", 3);
  fixed.index = 0;
  static_cast<void>(c.hear(1, fixed));
  EXPECT_EQ(sent<wire::Welcome>(c.hear(2, join_of("tokyo", 3)))[0].second.site, SiteId{1});
  wire::Join far = join_of("lima", 3);
  far.index = 7;
  EXPECT_EQ(sent<wire::Welcome>(c.hear(3, far))[0].second.site, SiteId{7});
}

TEST(CoordinatorJoin, RefusesAnIndexThatAnotherHasAskedFor) {
  CoordinatorHarness c;
  wire::Join paris = join_of("paris", 3);
  paris.index = 0;
  static_cast<void>(c.hear(1, paris));
  wire::Join tokyo = join_of("tokyo", 3);
  tokyo.index = 0;
  const auto refused = sent<wire::Refuse>(c.hear(2, tokyo));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("index 0 is taken by paris"));
  EXPECT_THAT(refused[0].second.reason, HasSubstr("[join.index-taken]"));
}

// In a world of several sites each asks for its place there; the membership has the places of an earlier start.
TEST(CoordinatorJoin, AnIndexThatTheMembershipGivesToAnotherIsNoReasonToRefuse) {
  CoordinatorHarness c;
  const wire::Offer anchor{RunId{7}, RoundId{4}, kRight};
  const std::vector<wire::Voter> voters = voters_of({"paris", "oslo", "rome"});
  wire::Join paris = member_of("paris", anchor, voters);
  paris.index = 0;
  wire::Join oslo = member_of("oslo", anchor, voters);
  oslo.index = 2;
  wire::Join rome = join_of("rome");  // has lost its disk
  rome.index = 1;
  static_cast<void>(c.come(1, paris));
  static_cast<void>(c.come(2, oslo));
  const auto actions = c.hear(3, rome);
  EXPECT_TRUE(sent<wire::Refuse>(actions).empty());
  ASSERT_EQ(sent<wire::Welcome>(actions).size(), 1U) << notes(actions);
  EXPECT_EQ(sent<wire::Welcome>(actions)[0].second.site, SiteId{2}) << "its own of the membership";
}

TEST(CoordinatorJoin, RefusesStrangersAndDoubles) {
  EXPECT_EQ(refusal(tokyo()), "");
  wire::Join join = tokyo();
  join.swarm = "other";
  EXPECT_THAT(refusal(join), HasSubstr("[join.other-swarm]"));
  join = join_of("paris");
  join.process = 99;
  EXPECT_THAT(refusal(join), AllOf(HasSubstr("paris:1"), HasSubstr("[join.name-taken]")));
  join = tokyo();
  join.elements = 0;
  EXPECT_THAT(refusal(join), HasSubstr("[join.no-parameters]"));
}

TEST(CoordinatorJoin, RefusesOtherSettingsWithBothValues) {
  wire::Join join = tokyo();
  join.settings[0].value = "int8";
  EXPECT_EQ(refusal(join), std::string("codec: this site has int8, the swarm (from paris) has fp16") +
                               "; set it to the same value at all sites [join.setting-mismatch]");
  join = tokyo();
  join.settings.pop_back();
  EXPECT_EQ(refusal(join), std::string("outer: this site has no such setting, the swarm (from paris) has average") +
                               "; set it to the same value at all sites [join.setting-mismatch]");
  join = tokyo();
  join.settings.push_back({"extra", "1"});
  EXPECT_EQ(refusal(join), std::string("extra: this site has 1, the swarm (from paris) has no such setting") +
                               "; set it to the same value at all sites [join.setting-mismatch]");
}

// A stranger whose link has the lowest number comes before them.
TEST(CoordinatorJoin, AtAnElectionTheSettingsOfFormerMembersCount) {
  CoordinatorHarness c;
  const wire::Offer anchor{RunId{7}, RoundId{3}, kRight};
  const std::vector<wire::Voter> both = voters_of({"paris", "tokyo"});
  static_cast<void>(c.come(5, member_of("paris", anchor, both)));
  wire::Join stranger = join_of("lima");
  stranger.settings[0].value = "int8";
  static_cast<void>(c.come(1, stranger));
  const auto actions = c.come(6, member_of("tokyo", anchor, both));
  EXPECT_EQ(sent<wire::Welcome>(actions).size(), 2U);
  ASSERT_EQ(sent<wire::Refuse>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::Refuse>(actions)[0].first, LinkId{1});
}

TEST(CoordinatorJoin, TheSettingsOfFormerMembersCountInARunThatContinuesTheirs) {
  CoordinatorHarness c;
  const std::vector<wire::Voter> three = voters_of({"paris", "tokyo", "oslo"});
  wire::Join stranger = join_of("lima");
  stranger.settings[0].value = "int8";
  static_cast<void>(c.come(5, member_of("paris", {RunId{7}, RoundId{3}, kRight}, three)));
  static_cast<void>(c.come(1, stranger));
  wire::Join tokyo = join_of("tokyo");
  tokyo.report.record.acceptor = AcceptorId{99};  // it has lost its record
  static_cast<void>(c.come(6, tokyo));
  const auto actions = c.pass(seconds(65), {1, 5, 6});
  ASSERT_EQ(sent<wire::Refuse>(actions).size(), 1U) << notes(actions);
  EXPECT_EQ(sent<wire::Refuse>(actions)[0].first, LinkId{1});
}

TEST(CoordinatorJoin, TheSettingsOfAHelperDoNotBindTheSites) {
  CoordinatorHarness c;
  wire::Join helper = join_of("helper");
  helper.helper = true;
  helper.settings[0].value = "int8";
  static_cast<void>(c.hear(1, helper));
  const auto actions = c.hear(2, join_of("paris"));
  EXPECT_EQ(sent<wire::Welcome>(actions).size(), 1U) << notes(actions);
  ASSERT_EQ(all<CloseLink>(actions).size(), 1U);
  EXPECT_EQ(all<CloseLink>(actions)[0].link, LinkId{1});
  EXPECT_THAT(all<CloseLink>(actions)[0].why, HasSubstr("[join.helper-differs]"));
}

// A text that the knob takes and that is not its default.
std::string other_value(const KnobRow& row) {
  const Config fresh;
  for (const char* text : {"0", "1", "8", "0.5", "fp32", "nesterov", "steps", "equal", "mix:0.25"}) {
    Config config;
    if (row.form.parse(text, config) && row.form.format(config) != row.form.format(fresh)) return text;
  }
  return {};
}

std::vector<wire::Setting> settings_of(const Config& config) {
  std::vector<wire::Setting> settings;
  for (const auto& [name, value] : shared_settings(config)) settings.push_back({name, value});
  return settings;
}

TEST(CoordinatorJoin, RefusesEveryKnobThatSitesShareWithBothValues) {
  std::size_t refused = 0;
  for (const KnobRow& row : knob_rows()) {
    Config config;
    const std::string here = other_value(row);
    if (row.knob.scope != KnobScope::kSites) continue;
    ASSERT_NE(here, "") << row.knob.name << ": give other_value() a text for it";
    ASSERT_TRUE(row.form.parse(here, config)) << row.knob.name;
    CoordinatorHarness c;
    wire::Join paris = join_of("paris");
    paris.settings = settings_of(Config());
    static_cast<void>(c.hear(1, paris));
    wire::Join join = tokyo();
    join.settings = settings_of(config);
    const auto refusals = sent<wire::Refuse>(c.hear(2, join));
    ASSERT_EQ(refusals.size(), 1U) << row.knob.name;
    EXPECT_EQ(refusals[0].second.reason, std::string(row.knob.name) + ": this site has " + row.form.format(config) +
                                             ", the swarm (from paris) has " + row.form.format(Config()) +
                                             "; set it to the same value at all sites [join.setting-mismatch]");
    ++refused;
  }
  EXPECT_EQ(refused, shared_settings(Config()).size());
}

// A refusal that begins with what differs.
auto differs(const std::string& words, const std::string& code) {
  return AllOf(StartsWith(words), EndsWith("[" + code + "]"));
}
auto model_differs(const std::string& words) { return differs(words + "; ", "join.model-mismatch"); }
auto buffers_differ(const std::string& words) { return differs(words + ". ", "join.buffers-mismatch"); }

TEST(CoordinatorJoin, RefusesOtherModelsByTheFirstDifference) {
  wire::Join join = tokyo();
  join.model[0].shape = {64, 64};
  EXPECT_THAT(refusal(join), model_differs("parameter 0 \"wte.weight\": shape [64, 64] here, [32, 128] at paris"));
  join = tokyo();
  join.model[0].dtype = "bfloat16";
  EXPECT_THAT(refusal(join), model_differs("parameter 0 \"wte.weight\": dtype bfloat16 here, float32 at paris"));
  join = tokyo();
  join.model[0].name = "wpe.weight";
  EXPECT_THAT(refusal(join), model_differs("parameter 0: \"wpe.weight\" here, \"wte.weight\" at paris"));
  join = tokyo();
  join.model[0].kind = TensorKind::kFrozen;
  EXPECT_THAT(refusal(join), model_differs("parameter 0 \"wte.weight\": frozen here, averaged at paris"));
  join = tokyo();
  join.model[1].digest = {8, 8};
  EXPECT_THAT(refusal(join), AllOf(HasSubstr("parameter 1 \"mask\""), HasSubstr("[join.model-mismatch]")));
  join = tokyo();
  join.model.push_back({"more", "float32", {1}, TensorKind::kAveraged, {}});
  EXPECT_THAT(refusal(join), model_differs("parameter 2 \"more\": here only (3 parameters here, 2 at paris)"));
  join = tokyo();
  join.model.pop_back();
  EXPECT_THAT(refusal(join), model_differs("parameter 1 \"mask\": at paris only (1 parameters here, 2 at paris)"));
  join = tokyo();
  join.elements = 5;
  EXPECT_THAT(refusal(join), model_differs("the parameter vector: 5 elements here, 4096 at paris"));
}

TEST(CoordinatorJoin, ASilentNamesakeIsReplacedALivingOneIsNot) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  wire::Join again = join_of("paris", 2);
  again.process = 99;
  EXPECT_TRUE(sent<wire::Welcome>(c.hear(3, again)).empty());
  EXPECT_EQ(sent<wire::Refuse>(c.hear(1, wire::Heartbeat{})).size(), 1U) << "it lives";
  EXPECT_TRUE(sent<wire::Welcome>(c.hear(3, again)).empty());
  EXPECT_THAT(sent<wire::Welcome>(c.pass(seconds(4), {2})), testing::ElementsAre(testing::Pair(LinkId{3}, testing::_)));
  EXPECT_EQ(c.coordinator.members(), 2U);
}

TEST(CoordinatorJoin, TheSameProcessReplacesItsOldLinkAtOnce) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  const auto actions = c.hear(3, join_of("paris", 2));
  EXPECT_EQ(sent<wire::Welcome>(actions).size(), 1U);
  EXPECT_EQ(all<CloseLink>(actions)[0].link, LinkId{1});
}

TEST(CoordinatorJoin, TheFirstAnchorWaitsForAllExpected) {
  CoordinatorHarness c;
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(1, join_of("paris", 3))).empty());
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(2, join_of("tokyo", 1))).empty());
  const auto installs = sent<wire::InstallAnchor>(c.hear(3, join_of("lima", 1)));
  ASSERT_EQ(installs.size(), 3U);
  for (const auto& [link, install] : installs) {
    EXPECT_EQ(without_voters(install), (wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, kRight}));
  }
}

TEST(CoordinatorJoin, MinSitesOfTheCoordinatorCounts) {
  CoordinatorConfig config = CoordinatorHarness::defaults();
  config.min_sites = 2;
  CoordinatorHarness c(config);
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(1, join_of("paris"))).empty());
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(2, join_of("tokyo"))).size(), 2U);
}

TEST(CoordinatorJoin, TheHighestRunThenRoundThenLowestSiteWins) {
  CoordinatorHarness c;
  const std::vector<wire::Offer> offers{{RunId{0}, RoundId{0}, {1, 0}},
                                        {RunId{3}, RoundId{9}, {2, 0}},
                                        {RunId{4}, RoundId{2}, {3, 0}},
                                        {RunId{4}, RoundId{5}, {4, 0}},
                                        {RunId{4}, RoundId{5}, {5, 0}}};
  CoordinatorHarness::Actions last;
  for (std::uint32_t i = 0; i < offers.size(); ++i) {
    wire::Join join = join_of("site" + std::to_string(i), 5);
    join.offer = offers[i];
    last = c.hear(i + 1, join);
  }
  EXPECT_EQ(without_voters(sent<wire::InstallAnchor>(last)[0].second),
            (wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{5}, {SiteId{3}}, {4, 0}}))
      << "under another run's name: it is unknown which sites agreed on it";
}

TEST(CoordinatorJoin, ALoneSiteOfThreeIsRefusedAfterTheTimeout) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_of("paris", 3)));
  const auto actions = c.pass(seconds(301), {1});
  EXPECT_THAT(notes(actions), HasSubstr("round 0: 1 of 3 sites are here (paris); waiting for the others (10 s)"));
  ASSERT_EQ(sent<wire::Refuse>(actions).size(), 1U);
  EXPECT_THAT(sent<wire::Refuse>(actions)[0].second.reason,
              HasSubstr("only 1 of 3 sites are here (paris) after 300 s"));
  EXPECT_EQ(c.coordinator.members(), 0U);
  EXPECT_EQ(c.coordinator.next_deadline(), kNever);
}

TEST(CoordinatorJoin, WaitingSitesAreToldWhichWasRefused) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_of("paris", 2)));
  wire::Join other = join_of("tokyo", 2);
  other.swarm = "another";
  EXPECT_EQ(sent<wire::Refuse>(c.hear(2, other)).size(), 1U);
  const auto actions = c.pass(seconds(301), {1});
  ASSERT_EQ(sent<wire::Refuse>(actions).size(), 1U);
  EXPECT_THAT(
      sent<wire::Refuse>(actions)[0].second.reason,
      testing::ContainsRegex("only 1 of 2 sites are here \\(paris; .*tokyo.* was refused: .*another.*\\) after"));

  static_cast<void>(c.hear(3, join_of("paris", 3)));
  EXPECT_EQ(sent<wire::Refuse>(c.hear(4, other)).size(), 1U);
  static_cast<void>(c.hear(5, join_of("tokyo", 3)));
  EXPECT_THAT(notes(c.pass(seconds(20), {3, 5})), HasSubstr("2 of 3 sites are here (paris, tokyo); waiting"))
      << "it was put right";
}

TEST(CoordinatorJoin, LateJoinersFetchFromAllHoldersOfTheAnchor) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  wire::Join late = join_of("lima");
  late.offer.digest = kWrong;
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(3, late)).at(0).second.sources, (std::vector{SiteId{0}, SiteId{1}}));
}

TEST(CoordinatorJoin, ManyMembersTakeTurnsAsSourcesForJoiners) {
  CoordinatorHarness c;
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back("site" + std::to_string(i));
  c.gather(names);
  std::set<SiteId> sources;
  for (std::uint64_t link = 13; link <= 14; ++link) {
    wire::Join late = join_of("late" + std::to_string(link));
    late.offer.digest = kWrong;
    const auto installs = sent<wire::InstallAnchor>(c.hear(link, late));
    ASSERT_EQ(installs.size(), 1U);
    EXPECT_EQ(installs[0].second.sources.size(), 8U);
    sources.insert(installs[0].second.sources.begin(), installs[0].second.sources.end());
  }
  EXPECT_EQ(sources.size(), 12U);
}

TEST(CoordinatorJoin, AnOfferThatNobodyHasAgreedOnComesTooLateOnceTheAnchorIsChosen) {
  CoordinatorHarness c;
  wire::Join paris = join_of("paris");
  paris.offer = {RunId{5}, RoundId{3}, kRight};
  static_cast<void>(c.hear(1, paris));
  wire::Join tokyo = join_of("tokyo");
  tokyo.offer = {RunId{5}, RoundId{4}, kWrong};
  const auto installs = sent<wire::InstallAnchor>(c.hear(2, tokyo));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].first, LinkId{2});
  EXPECT_EQ(without_voters(installs[0].second),
            (wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{3}, {SiteId{0}}, kRight, wire::Counted::kUnknown}));
}

TEST(CoordinatorJoin, AJoinerIsServedOnceTheRoundIsCommitted) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  const wire::StartAttempt start = c.start(1, 2);
  wire::Join late = join_of("lima");
  late.offer.digest = kWrong;
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(3, late)).empty());
  static_cast<void>(c.hear(1, CoordinatorHarness::done(start)));
  EXPECT_EQ(sent<wire::Commit>(c.hear(2, CoordinatorHarness::done(start))).size(), 2U);
  const auto installs = sent<wire::InstallAnchor>(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(without_voters(installs[0].second),
            (wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{1}, {SiteId{1}}, kWrong}));
  // A site that applied the commit a moment later is a source as well.
  const auto more = sent<wire::InstallAnchor>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more[0].second.sources, (std::vector{SiteId{0}, SiteId{1}}));
}

TEST(CoordinatorJoin, AJoinerIsToldTheOtherSourcesWhenOneIsLost) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  wire::Join late = join_of("lima");
  late.offer.digest = kWrong;
  static_cast<void>(c.hear(3, late));
  const auto installs = sent<wire::InstallAnchor>(c.close(1));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.sources, std::vector{SiteId{1}});
}

TEST(CoordinatorJoin, ASourceThatHoldsSomethingElseByNowIsHeard) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_of("paris")));
  const auto actions = c.hear(1, wire::AnchorInstalled{RunId{6}, RoundId{2}, kWrong});
  ASSERT_EQ(sent<wire::InstallAnchor>(actions).size(), 1U);
  EXPECT_EQ(without_voters(sent<wire::InstallAnchor>(actions)[0].second),
            (wire::InstallAnchor{TermId{1}, RunId{8}, RoundId{2}, {SiteId{0}}, kWrong, wire::Counted::kUnknown}))
      << "of a round of run 6 nobody here knows";
}

// Nobody who comes knows of the run that was here: what was agreed on its sites remember, not the leader.
TEST(CoordinatorJoin, AFreshSiteThatStartsOverYieldsToTheOneWithTheLostRound) {
  CoordinatorHarness c;
  c.gather({"paris"});
  const wire::StartAttempt start = c.start(1, 1);
  static_cast<void>(c.hear(1, CoordinatorHarness::done(start)));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  static_cast<void>(c.close(1));
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(2, join_of("tokyo"))).size(), 1U);
  const auto back = c.come(3, member_of("paris", {RunId{7}, RoundId{1}, kWrong}, start.voters));
  EXPECT_EQ(all<CloseLink>(back).at(0).link, LinkId{2});
  const auto installs = sent<wire::InstallAnchor>(back);
  ASSERT_EQ(installs.size(), 1U) << notes(back);
  EXPECT_EQ(installs[0].second.run, RunId{7});
  EXPECT_EQ(installs[0].second.round, RoundId{1});
  const auto again = sent<wire::InstallAnchor>(c.hear(4, join_of("tokyo")));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].second.round, RoundId{1});
}

TEST(CoordinatorJoin, TheLastMemberBackOnANewLinkIsNoMemberBeforeItHasPromisedATerm) {
  CoordinatorHarness c;
  c.gather({"paris"});
  const wire::Offer anchor{RunId{7}, RoundId{0}, kRight};
  const auto actions = c.hear(2, member_of("paris", anchor, voters_of({"paris"})));  // from the same address
  EXPECT_EQ(all<CloseLink>(actions)[0].link, LinkId{1});
  EXPECT_TRUE(sent<wire::Welcome>(actions).empty());
  EXPECT_EQ(sent<wire::Prepare>(actions).size(), 1U);
}

TEST(CoordinatorJoin, ASiteLostBeforeTheBeginningDoesNotStopTheOthers) {
  CoordinatorHarness c;
  for (std::uint64_t link = 1; link <= 3; ++link) {
    EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(link, join_of("site" + std::to_string(link), 4))).empty());
  }
  static_cast<void>(c.close(1));
  static_cast<void>(c.hear(4, join_of("late", 4)));
  const auto begun = c.pass(seconds(301), {2, 3, 4});
  EXPECT_THAT(notes(begun), HasSubstr("only 3 of 4 sites are here"));
  EXPECT_TRUE(sent<wire::Refuse>(begun).empty());
  EXPECT_EQ(sent<wire::InstallAnchor>(begun).size(), 3U);
}

TEST(CoordinatorJoin, ASiteWithItsOwnSwarmEndsOneThatHasJustBegun) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, join_of("lima")));
  wire::Join old = join_of("paris");
  old.offer = {RunId{3}, RoundId{5}, kRight};
  old.report.record.anchor = old.offer;
  old.report.record.voters = voters_of({"paris", "tokyo"});
  const auto actions = c.hear(2, old);
  EXPECT_EQ(all<CloseLink>(actions).at(0).link, LinkId{1});
  EXPECT_TRUE(sent<wire::Welcome>(actions).empty()) << "one of two is no majority";
  old.site = "tokyo";
  EXPECT_EQ(sent<wire::Prepare>(c.hear(3, old)).size(), 2U);
}

TEST(CoordinatorJoin, TheOthersDigestCountsOnceTheOnlyReporterOfAnotherIsGone) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo"});
  const wire::StartAttempt start = c.start(1, 2);
  static_cast<void>(c.hear(1, CoordinatorHarness::done(start)));
  static_cast<void>(c.hear(2, CoordinatorHarness::done(start)));
  static_cast<void>(c.hear(2, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  static_cast<void>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  static_cast<void>(c.close(2));
  const auto installs = sent<wire::InstallAnchor>(c.hear(3, join_of("tokyo")));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.digest, kWrong);
}

TEST(CoordinatorJoin, ARunThatEndedWellIsNotWaitedFor) {
  CoordinatorHarness c;
  c.gather({"paris"});
  static_cast<void>(c.hear(1, wire::Leave{"done"}));
  const auto installs = sent<wire::InstallAnchor>(c.hear(2, join_of("tokyo")));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.run, RunId{8});  // later runs are larger
}

// A site with some buffers left out, in a model of three.
wire::Join with_buffers(const std::string& name, const std::vector<std::size_t>& left_out) {
  wire::Join join = join_of(name);
  join.model.clear();
  for (const char* each : {"a.mask", "b.mask", "norm.mean"}) {
    join.model.push_back({each, "float32", {4}, TensorKind::kAveraged, {}});
  }
  for (const std::size_t which : left_out) {
    join.model[which].kind = TensorKind::kLeftOut;
    join.model[which].digest = {9, which};
  }
  return join;
}

TEST(CoordinatorJoin, RefusesOtherBuffersLeftOutWithBothLists) {
  const auto refused = [](const wire::Join& join) {
    CoordinatorHarness c;
    static_cast<void>(c.hear(1, with_buffers("paris", {0})));
    const auto refusals = sent<wire::Refuse>(c.hear(2, join));
    return refusals.empty() ? std::string() : refusals[0].second.reason;
  };
  EXPECT_EQ(refused(with_buffers("tokyo", {0})), "");
  EXPECT_THAT(refused(with_buffers("tokyo", {0, 1})),
              buffers_differ("buffers left out of the average: here a.mask, b.mask; at paris a.mask"));
  // Another length of the vector, and a setting made from it, are its consequences.
  wire::Join join = with_buffers("tokyo", {});
  join.elements = 1;
  join.settings.push_back({"outer_elements", "1"});
  EXPECT_THAT(refused(join), buffers_differ("buffers left out of the average: here none; at paris a.mask"));
  // Where the models differ in more than that, it is said first.
  join = with_buffers("tokyo", {0, 1});
  join.model[1].shape = {5};
  EXPECT_THAT(refused(join), AllOf(HasSubstr("parameter 1 \"b.mask\""), HasSubstr("[join.model-mismatch]")));
  join = with_buffers("tokyo", {});
  join.model.clear();
  join.settings.push_back({"buffers", "0"});
  EXPECT_THAT(refused(join), AllOf(HasSubstr("buffers: this site has 0"), HasSubstr("[join.setting-mismatch]")));
}

TEST(CoordinatorJoin, ShowsTheDifferenceOfLongLists) {
  CoordinatorHarness c;
  wire::Join paris = join_of("paris");
  for (int i = 0; i < 40; ++i) {
    paris.model.push_back({"h." + std::to_string(i), "float32", {4}, TensorKind::kLeftOut, {}});
  }
  wire::Join join = paris;
  join.site = "tokyo";
  join.address = "tokyo:1";
  paris.model.back().kind = TensorKind::kAveraged;
  static_cast<void>(c.hear(1, paris));
  const std::string said = sent<wire::Refuse>(c.hear(2, join)).at(0).second.reason;
  EXPECT_THAT(said, HasSubstr("here h.39, h.0, h.1"));
  EXPECT_THAT(said, HasSubstr("h.14 and 24 more; at paris h.0, h.1"));
}

TEST(CoordinatorJoin, OtherValuesOfLeftOutBuffersGiveOneWarning) {
  CoordinatorHarness c;
  static_cast<void>(c.hear(1, with_buffers("paris", {0, 1})));
  wire::Join join = with_buffers("tokyo", {0, 1});
  EXPECT_THAT(notes(c.hear(2, join)), Not(HasSubstr("[buffers]")));
  join = with_buffers("lima", {0, 1});
  join.model[0].digest = {1, 2};
  join.model[1].digest = {3, 4};
  const auto actions = c.hear(3, join);
  EXPECT_THAT(notes(actions), HasSubstr("buffers that are left out of the average have different values at lima and "
                                        "at paris, and each site keeps its own: a.mask, b.mask"));
  ASSERT_EQ(sent<wire::Notice>(actions).size(), 1U);
  EXPECT_EQ(sent<wire::Notice>(actions)[0].first, LinkId{3});
  EXPECT_EQ(sent<wire::Welcome>(actions).size(), 1U) << "it is let in";
  join.site = "oslo";
  join.address = "oslo:1";
  const auto fourth = c.hear(4, join);
  EXPECT_EQ(sent<wire::Welcome>(fourth).size(), 1U);
  EXPECT_TRUE(sent<wire::Notice>(fourth).empty()) << "once is enough";
}

// tokyo was lost, paris left at once. What comes now is another swarm: a fresh tokyo waits for all of it, as one that
// remembers round 1 does, for it is half of those who agreed on it; unless it is told that paris will not come.
TEST(CoordinatorJoin, AfterARunThatEndedTheNextWaitsForAllAgain) {
  for (const bool resumes : {false, true}) {
    CoordinatorHarness c;
    c.gather({"paris", "tokyo"});
    const wire::StartAttempt start = c.start(1, 2);
    for (std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, CoordinatorHarness::done(start)));
    const wire::AnchorInstalled first{RunId{7}, RoundId{1}, kWrong};
    for (std::uint64_t link : {1, 2}) static_cast<void>(c.hear(link, first));
    static_cast<void>(c.close(2));
    static_cast<void>(c.hear(1, wire::Leave{"trained to the end"}));
    wire::Join tokyo = join_of("tokyo", 2);
    if (resumes) tokyo = member_of("tokyo", {RunId{7}, RoundId{1}, kWrong}, start.voters);
    const auto alone = c.come(3, tokyo);
    EXPECT_EQ(sent<wire::Welcome>(alone).size(), resumes ? 0U : 1U);
    EXPECT_TRUE(sent<wire::InstallAnchor>(alone).empty());
    if (resumes) {
      const auto forgotten = sent<wire::InstallAnchor>(c.elect(c.hear(9, wire::Forget{{"paris"}})));
      ASSERT_EQ(forgotten.size(), 1U);
      EXPECT_EQ(forgotten[0].second.round, RoundId{1});
      EXPECT_NE(forgotten[0].second.run, RunId{7});
      continue;
    }
    EXPECT_TRUE(sent<wire::InstallAnchor>(c.pass(seconds(70), {3})).empty());
    const auto installs = sent<wire::InstallAnchor>(c.hear(4, join_of("paris", 2)));
    ASSERT_EQ(installs.size(), 2U);
    EXPECT_EQ(installs[0].second.round, RoundId{0});
    EXPECT_NE(installs[0].second.run, RunId{7});
  }
}

// Two were lost, and only one of them comes again.
TEST(CoordinatorJoin, ASiteLostForGoodDoesNotHoldUpTheNextRun) {
  CoordinatorHarness c;
  c.gather({"paris", "tokyo", "lima"});
  const wire::StartAttempt start = c.start(1, 3);
  for (std::uint64_t link : {1, 2, 3}) static_cast<void>(c.hear(link, CoordinatorHarness::done(start)));
  for (std::uint64_t link : {1, 2, 3})
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  for (std::uint64_t link : {2, 3}) static_cast<void>(c.close(link));
  static_cast<void>(c.hear(1, wire::Leave{"trained to the end"}));
  EXPECT_TRUE(sent<wire::InstallAnchor>(c.hear(4, join_of("tokyo", 2))).empty());
  EXPECT_EQ(sent<wire::InstallAnchor>(c.hear(5, join_of("paris", 2))).size(), 2U);
}

}  // namespace
}  // namespace collab::protocol
