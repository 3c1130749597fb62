#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/base/config_of.h"

namespace collab {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ValueWarnings, SayThatThereAreMoreFragmentsThanSteps) {
  EXPECT_THAT(value_warnings(config_of({{"COLLAB_FRAGMENTS", "8"}, {"COLLAB_SYNC_EVERY", "4"}})),
              ::testing::ElementsAre(
                  HasSubstr("COLLAB_FRAGMENTS=8 with COLLAB_SYNC_EVERY=4: there is a round after every step")));
  for (const char* enough : {"8", "auto:4", "1s"}) {
    EXPECT_THAT(value_warnings(config_of({{"COLLAB_FRAGMENTS", "8"}, {"COLLAB_SYNC_EVERY", enough}})),
                ::testing::IsEmpty());
  }
}

TEST(ValueWarnings, SayThatMomentumWantsManyRounds) {
  const auto warnings = [](const char* steps, const char* momentum) {
    return value_warnings(config_of({{"COLLAB_PRESET", "pretrain"}},  // every 32 steps
                                    {{"sync_anneal", steps}, {"outer_momentum", momentum}}));
  };
  EXPECT_THAT(warnings("6399", "0.9"), ::testing::ElementsAre(AllOf(HasSubstr("COLLAB_OUTER_MOMENTUM=0.9: 6399 steps"),
                                                                    EndsWith("[knob.few-rounds]"))));
  EXPECT_THAT(warnings("6400", "0.9"), ::testing::IsEmpty());
  EXPECT_THAT(warnings("6399", "0.8"), ::testing::IsEmpty());
}

TEST(ValueWarnings, SayWhatDoesNotGoWithTopK) {
  EXPECT_THAT(value_warnings(config_of({{"COLLAB_PRESET", "slow"}})), ::testing::IsEmpty());
  EXPECT_THAT(value_warnings(config_of({{"COLLAB_CODEC", "int4"}, {"COLLAB_OUTER_OPTIMIZER", "nesterov"}})),
              ::testing::IsEmpty());
  EXPECT_THAT(value_warnings(config_of({{"COLLAB_CODEC", "topk64/int4"}, {"COLLAB_ERROR_FEEDBACK", "0"}})),
              ::testing::ElementsAre(AllOf(HasSubstr("COLLAB_ERROR_FEEDBACK=0 with COLLAB_CODEC=topk64/int4: "),
                                           EndsWith("[knob.no-feedback]"))));
  const Pairs momentum{{"COLLAB_CODEC", "int8/topk128"}, {"COLLAB_OUTER_OPTIMIZER", "nesterov"}};
  EXPECT_THAT(value_warnings(config_of(momentum)),
              ::testing::ElementsAre(AllOf(HasSubstr("nesterov with COLLAB_CODEC=int8/topk128: its momentum"),
                                           HasSubstr("COLLAB_OUTER_OPTIMIZER=average"), HasSubstr("int4"),
                                           EndsWith("[knob.top-k-momentum]"))));
  EXPECT_THAT(value_warnings(config_of(momentum, {{"outer_momentum", "0"}})), ::testing::IsEmpty());
}

}  // namespace
}  // namespace collab
