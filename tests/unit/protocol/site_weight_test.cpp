// The weight of a site's delta.
#include <gtest/gtest.h>

#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

double weight_by(WeightBy by, const Trigger& trained) {
  SiteConfig config = SiteHarness::defaults();
  config.weight = by;
  SiteHarness s(config);
  s.become(0, {"paris"});
  return sent<wire::Ready>(s.step(trained))[0].second.weight;
}

TEST(SiteWeight, FollowsTheKnob) {
  const Trigger trained{48, 3};
  EXPECT_EQ(weight_by(WeightBy::kSamples, trained), 48);
  EXPECT_EQ(weight_by(WeightBy::kSteps, trained), 3);
  EXPECT_EQ(weight_by(WeightBy::kEqual, trained), 1);
}

TEST(SiteWeight, IsAtMostWhatTheProtocolAllows) {
  EXPECT_EQ(weight_by(WeightBy::kSamples, Trigger{UINT64_MAX, 1}), wire::kMaxWeight);
}

TEST(SiteWeight, IsZeroWithoutTraining) {
  for (const WeightBy by : {WeightBy::kSamples, WeightBy::kSteps, WeightBy::kEqual}) {
    EXPECT_EQ(weight_by(by, Trigger{}), 0);
  }
}

}  // namespace
}  // namespace collab::protocol
