// COLLAB_SYNC_EVERY=auto at the coordinator: which period it chooses from the sites' reports, and which sites it tells.
#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::Not;
using H = CoordinatorHarness;

const std::vector<wire::Setting> kAuto{{"codec", "fp16"}, {"sync_every", "auto"}, {"target_overhead", "0.02"}};
constexpr double kUnknown = 0;

struct Measured {
  double step = kUnknown;  // seconds
  double round = kUnknown;
  double after = 0;  // the site before in the list
};

class PeriodAtTheCoordinator : public testing::Test {
 protected:
  explicit PeriodAtTheCoordinator(std::vector<wire::Setting> settings = kAuto) : settings_(std::move(settings)) {}

  wire::Join join(const std::string& name, std::uint32_t expected) const {
    wire::Join join = join_of(name, expected);
    join.settings = settings_;
    return join;
  }
  void gather(const std::vector<std::string>& names) {
    const auto count = static_cast<std::uint32_t>(names.size());
    for (std::uint32_t i = 0; i < count; ++i) static_cast<void>(c.hear(i + 1, join(names[i], count)));
    for (std::uint32_t i = 0; i < count; ++i)
      static_cast<void>(c.hear(i + 1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  }
  // A round of links 1..n, by the leader's clock so long as the first says beyond its wait; the period all are told.
  std::uint32_t round(std::uint64_t number, const std::vector<Measured>& said, std::uint32_t followed = 0) {
    H::Actions last;
    for (std::uint64_t i = 0; i < said.size(); ++i) {
      c.now += seconds(said[i].after);
      wire::Ready ready = H::ready(number);
      ready.measured.step_us = static_cast<std::uint64_t>(said[i].step * 1e6);
      ready.measured.round_us = static_cast<std::uint64_t>(said[i].round * 1e6);
      ready.period = followed;
      last = c.hear(i + 1, ready);
    }
    return commit_of(last);
  }
  std::uint32_t commit_of(const H::Actions& actions) {
    const auto starts = sent<wire::StartAttempt>(actions);
    EXPECT_FALSE(starts.empty());
    if (starts.empty()) return 0;
    for (const auto& [link, start] : starts) committed_ = c.hear(link.value, H::done(start));
    std::set<std::uint32_t> periods;
    for (const auto& [link, commit] : sent<wire::Commit>(committed_)) periods.insert(commit.period);
    EXPECT_EQ(periods.size(), 1U) << "all are told the same";
    const wire::StartAttempt& start = starts[0].second;
    for (const auto& [link, _] : starts)
      static_cast<void>(c.hear(link.value, wire::AnchorInstalled{start.run, start.round, kRight}));
    return periods.empty() ? 0 : *periods.begin();
  }

  std::vector<wire::Setting> settings_;
  H c;
  H::Actions committed_;
};

TEST_F(PeriodAtTheCoordinator, BeginsWithTenAndGoesByTheFirstRoundMeasured) {
  gather({"paris", "tokyo"});
  EXPECT_EQ(round(1, {{.step = 0.1}, {.step = 0.1}}), 10U) << "no round was measured yet";
  EXPECT_THAT(notes(committed_), Not(HasSubstr("[period]")));
  EXPECT_EQ(round(2, {{0.1, 1}, {0.1, 1}}), 500U);
  EXPECT_THAT(notes(committed_),
              HasSubstr("[period] round 2: 500 steps until the next round instead of 10: a round "
                        "takes 1 s, which may be at most 2 % of the training, and a step takes 0.1 s"));
  EXPECT_EQ(round(3, {{0.1, 1.02}, {0.1, 1}}), 500U);
  EXPECT_THAT(notes(committed_), Not(HasSubstr("[period]"))) << "told when it changes";
  EXPECT_THAT(c.coordinator.status_json(c.now), HasSubstr("\"period\":500"));
}

TEST_F(PeriodAtTheCoordinator, TheSlowestStepAndTheSlowestRoundDecide) {
  gather({"paris", "tokyo", "lima"});
  EXPECT_EQ(round(1, {{}, {}, {}}), 10U);
  EXPECT_EQ(round(2, {{0.1, 1}, {0.1, 2}, {0.4, 1}}), 250U) << "2 s of steps of 0.4 s";
}

TEST_F(PeriodAtTheCoordinator, WaitingForOthersIsNoRound) {
  gather({"paris", "tokyo"});
  EXPECT_EQ(round(1, {{}, {.after = 20}}), 10U);
  EXPECT_EQ(round(2, {{0.1, 21}, {0.4, 1, 20}}), 125U) << "paris has waited 20 s of its 21 s for tokyo";
  EXPECT_EQ(round(3, {{0.1, 21}, {0.4, 1, 20}}), 125U);
}

TEST_F(PeriodAtTheCoordinator, APeriodInSecondsIsNotChosen) {
  for (const char* every : {"100", "30s"}) {
    settings_ = {{"codec", "fp16"}, {"sync_every", every}, {"target_overhead", "0.02"}};
    c = H{};
    gather({"paris", "tokyo"});
    EXPECT_EQ(round(1, {{0.1, 1}, {0.1, 1}}), 0U);
    EXPECT_EQ(round(2, {{0.1, 1}, {0.1, 1}}), 0U);
    EXPECT_THAT(c.coordinator.status_json(c.now), HasSubstr("\"period\":0"));
  }
}

TEST_F(PeriodAtTheCoordinator, GoesByTheSettingsAllShare) {
  settings_ = {{"codec", "fp16"}, {"sync_every", "auto:32"}, {"target_overhead", "0.1"}, {"overlap", "0"}};
  gather({"paris", "tokyo"});
  EXPECT_EQ(round(1, {{}, {}}), 32U);
  EXPECT_EQ(round(2, {{0.1, 1}, {0.1, 1}}), 100U);
}

TEST_F(PeriodAtTheCoordinator, AnOverlappedRoundEndsBeforeTheNextBegins) {
  settings_.push_back({"overlap", "1"});
  gather({"paris", "tokyo"});
  EXPECT_EQ(round(1, {{}, {}}), 10U);
  EXPECT_EQ(round(2, {{0.5, 10}, {0.5, 10}}), 22U);
  EXPECT_THAT(notes(committed_), HasSubstr("a round takes 10 s behind the training, and a step takes 0.5 s"));
}

class PeriodBySamples : public PeriodAtTheCoordinator {
 protected:
  PeriodBySamples()
      : PeriodAtTheCoordinator({{"codec", "fp16"}, {"sync_every", "samples:960"}, {"target_overhead", "0.02"}}) {}
  // Of sites that have trained on so many samples in so many steps each.
  std::uint32_t counted(std::uint64_t number, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& said) {
    H::Actions last;
    for (std::uint64_t i = 0; i < said.size(); ++i) {
      wire::Ready ready = H::ready(number);
      std::tie(ready.samples, ready.steps) = said[i];
      last = c.hear(i + 1, ready);
    }
    return commit_of(last);
  }
};

TEST_F(PeriodBySamples, IsTheStepsInWhichAllSitesTogetherTrainOnTheSamples) {
  gather({"paris", "tokyo"});
  EXPECT_EQ(counted(1, {{80, 10}, {160, 10}}), 40U) << "8 and 16 a step";
  EXPECT_THAT(notes(committed_), HasSubstr("[period] round 1: 40 steps until the next round instead of 10: the sites "
                                           "train on 24 samples a step, and a round is due every 960"));
  EXPECT_EQ(counted(2, {{320, 40}, {630, 40}}), 40U) << "a last batch was smaller";
  EXPECT_THAT(notes(committed_), Not(HasSubstr("[period]")));
}
TEST_F(PeriodBySamples, IsShorterWhenMoreTakePart) {
  gather({"paris", "tokyo"});
  EXPECT_EQ(counted(1, {{80, 10}, {160, 10}}), 40U);
  static_cast<void>(c.hear(3, join("lima", 1)));
  static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{1}, kRight}));
  EXPECT_EQ(counted(2, {{320, 40}, {640, 40}, {96, 4}}), 20U) << "24 more, of which it has made few";
}
TEST_F(PeriodBySamples, IsAtLeastAStepAndStaysIfNoSiteCountsSamples) {
  gather({"paris", "tokyo"});
  EXPECT_EQ(counted(1, {{0, 0}, {0, 0}}), 10U);
  EXPECT_EQ(counted(2, {{1'000'000, 10}, {0, 10}}), 1U);
}

TEST_F(PeriodAtTheCoordinator, IsMeasuredFirstForASiteThatJoins) {
  gather({"paris", "tokyo"});
  round(1, {{}, {}});
  EXPECT_EQ(round(2, {{0.1, 1}, {0.1, 1}}), 500U);
  const auto installs = sent<wire::InstallAnchor>(c.hear(3, join("lima", 1)));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.period, 500U) << "it begins as the others go on";
  static_cast<void>(c.hear(3, wire::AnchorInstalled{RunId{7}, RoundId{2}, kRight}));
  EXPECT_EQ(round(3, {{0.1, 1}, {0.1, 1}, {0.2, kUnknown}}), 500U) << "that round was without it";
  EXPECT_EQ(round(4, {{0.1, 4}, {0.1, 4}, {0.2, 4}}), 1000U) << "at once, by the new ones alone";
}

TEST_F(PeriodAtTheCoordinator, ARoundIsMeasuredAnewAfterASiteHasLeft) {
  gather({"paris", "tokyo", "lima"});
  round(1, {{}, {}, {}});
  EXPECT_EQ(round(2, {{0.1, 1}, {0.1, 1}, {0.1, 5}}), 2500U);
  static_cast<void>(c.hear(3, wire::Leave{"the training script has ended", 0}));
  EXPECT_EQ(round(3, {{0.1, 5}, {0.1, 5}}), 2500U) << "its line took part in that";
  EXPECT_EQ(round(4, {{0.1, 1}, {0.1, 1}}), 500U);
}

TEST_F(PeriodAtTheCoordinator, ATriggerWithoutARoundMeasuresNothing) {
  gather({"paris", "tokyo", "lima"});
  round(1, {{}, {}, {}});
  static_cast<void>(c.hear(1, H::ready(2)));
  EXPECT_EQ(sent<wire::RoundSkipped>(c.pass(seconds(1801), {1, 2, 3})).size(), 1U) << "the others were not ready";
  EXPECT_THAT(c.coordinator.status_json(c.now), HasSubstr("\"period\":10,"));
  EXPECT_EQ(round(2, {{0.1, 1}, {0.1, 1}, {0.1, 1}}), 500U);
  EXPECT_EQ(round(3, {{0.1, 2}, {0.1, kUnknown}, {0.1, kUnknown}}), 750U) << "it did not wait half an hour for that";
}

class Successor : public PeriodAtTheCoordinator {};

// A new leader has measured nothing, and goes on from what the sites follow.
TEST_F(Successor, ContinuesFromThePeriodThatTheSitesFollow) {
  gather({"paris", "tokyo"});
  EXPECT_EQ(round(1, {{0.1, 1}, {0.1, 1}}, 500), 500U);
  EXPECT_THAT(notes(committed_), Not(HasSubstr("[period]"))) << "of that round it does not know who waited for whom";
  EXPECT_EQ(round(2, {{0.1, 2}, {0.1, 2}}, 500), 1000U);
}

}  // namespace
}  // namespace collab::protocol
