// How often rounds come, as the knobs say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collab/config.h"
#include "core/base/knobs.h"
#include "tests/unit/base/config_of.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string error_of(const Pairs& environment) {
  const auto loaded = load_config(environment);
  EXPECT_FALSE(loaded.ok());
  return loaded.status().message();
}

TEST(SyncEvery, IsStepsOrTime) {
  EXPECT_EQ(config_of({{"COLLAB_SYNC_EVERY", "250"}}).sync_every.steps, 250U);
  const SyncEvery by_time = config_of({{"COLLAB_SYNC_EVERY", "30s"}}).sync_every;
  EXPECT_EQ(by_time.steps, 0U);
  EXPECT_EQ(by_time.time, milliseconds(30'000));
  for (const std::string bad : {"0", "30 s", "-5", "1.5", "s", "", "5ms", "25h", "100steps", "1000000001", "30d"}) {
    EXPECT_THAT(error_of({{"COLLAB_SYNC_EVERY", bad}}), HasSubstr("COLLAB_SYNC_EVERY: expected a number of steps"))
        << bad;
  }
}

TEST(SyncEvery, AutoBeginsAsThePresetDoes) {
  const auto every = [](const Pairs& given) { return config_of(given).sync_every; };
  EXPECT_FALSE(every({}).automatic);
  EXPECT_TRUE(every({{"COLLAB_SYNC_EVERY", "auto"}}).automatic);
  EXPECT_EQ(every({{"COLLAB_SYNC_EVERY", "auto"}}).steps, 10U);
  EXPECT_EQ(every({{"COLLAB_SYNC_EVERY", "auto"}, {"COLLAB_PRESET", "lan"}}).steps, 50U);
  EXPECT_EQ(every({{"COLLAB_SYNC_EVERY", "auto:7"}, {"COLLAB_PRESET", "lan"}}).steps, 7U);
  for (const auto& [given, printed] :
       Pairs{{"auto", "auto"}, {"auto:10", "auto"}, {"auto:32", "auto:32"}, {"auto:10000", "auto:10000"}}) {
    const auto loaded = load_config({{"COLLAB_SYNC_EVERY", given}});
    ASSERT_TRUE(loaded.ok());
    const auto value = std::ranges::find(loaded->values, row_of("sync_every")->knob.name,
                                         [](const KnobValue& each) { return each.knob->name; });
    EXPECT_EQ(value->value, printed);
    EXPECT_EQ(row_of("sync_every")->form.data(loaded->config), KnobData(printed));
  }
  for (const std::string bad : {"auto:", "auto:0", "auto:10001", "auto:5s", "auto 5", "Auto", "automatic"}) {
    EXPECT_THAT(error_of({{"COLLAB_SYNC_EVERY", bad}}), HasSubstr("COLLAB_SYNC_EVERY: expected a number of steps"))
        << bad;
  }
}

TEST(SyncEvery, MayBeANumberOfTheSwarmsSamples) {
  const auto loaded = load_config({{"COLLAB_SYNC_EVERY", "samples:4096"}, {"COLLAB_PRESET", "wan"}});
  ASSERT_TRUE(loaded.ok());
  const SyncEvery& every = loaded->config.sync_every;
  EXPECT_TRUE(every.automatic);
  EXPECT_EQ(every.steps, 10U) << "until the first round has told how many a step is";
  EXPECT_EQ(every.samples, 4096U);
  EXPECT_EQ(row_of("sync_every")->form.format(loaded->config), "samples:4096");
  EXPECT_EQ(row_of("sync_every")->form.data(loaded->config), KnobData(std::string("samples:4096")));
  for (const std::string bad : {"samples:", "samples:0", "samples:-1", "samples:1e6", "samples 5", "4096samples"}) {
    EXPECT_THAT(error_of({{"COLLAB_SYNC_EVERY", bad}}), HasSubstr("auto, or samples:4096")) << bad;
  }
}

TEST(SyncEvery, WarmUpCountsInSteps) {
  EXPECT_EQ(config_of({}).sync_warmup, 0U);
  EXPECT_EQ(config_of({{"COLLAB_SYNC_WARMUP", "6"}}).sync_warmup, 6U);
  EXPECT_EQ(config_of({{"COLLAB_SYNC_WARMUP", "6"}, {"COLLAB_SYNC_EVERY", "auto"}}).sync_warmup, 6U);
  EXPECT_THAT(error_of({{"COLLAB_SYNC_WARMUP", "6"}, {"COLLAB_SYNC_EVERY", "30s"}}),
              HasSubstr("COLLAB_SYNC_WARMUP: expected 0 where COLLAB_SYNC_EVERY is a time"));
}

TEST(SyncEvery, AnnealCountsRoundsOfAKnownLength) {
  const auto anneal = [](const std::string& text) { return config_of({{"COLLAB_SYNC_ANNEAL", text}}).sync_anneal; };
  EXPECT_EQ(config_of({}).sync_anneal.steps, 0U);
  EXPECT_EQ(anneal("20000").steps, 20'000U);
  EXPECT_EQ(anneal("20000").share, 0.1);
  EXPECT_EQ(anneal("20000:0.25").share, 0.25);
  for (const std::string bad : {"", "-1", "100:0", "100:1.5", "100:", "0:0.5", ":0.5", "100000001", "1e4"}) {
    EXPECT_THAT(error_of({{"COLLAB_SYNC_ANNEAL", bad}}), HasSubstr("COLLAB_SYNC_ANNEAL: expected a number of steps"))
        << bad;
  }
  for (const std::string every : {"30s", "auto"}) {
    EXPECT_THAT(error_of({{"COLLAB_SYNC_ANNEAL", "500:0.5"}, {"COLLAB_SYNC_EVERY", every}}),
                AllOf(HasSubstr("COLLAB_SYNC_EVERY is a number of steps, which is " + every + "; got 500:0.5"),
                      EndsWith("[knob.anneal-needs-steps]")));
  }
}

}  // namespace
}  // namespace collab
