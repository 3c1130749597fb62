#include "core/protocol/site/rate_meter.h"

#include <gtest/gtest.h>

#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr std::uint64_t kChunk = 125'000;  // a megabit

TimePoint at(double seconds) { return TimePoint(Duration(static_cast<Duration::rep>(1e6 * seconds))); }

// `rate` in Mbit/s from `from` to `to`.
void carry(RateMeter& meter, double from, double to, double rate) {
  for (double time = from; time < to; time += 1 / rate) meter.add(at(time), kChunk);
}

TEST(RateMeter, HasNoRateUntilARoundHasLastedLongEnough) {
  RateMeter meter;
  EXPECT_EQ(meter.kbit_per_second(), 0U);
  meter.begin_round();
  carry(meter, 0, 0.25, 100);
  EXPECT_EQ(meter.kbit_per_second(), 0U);
  meter.begin_round();
  EXPECT_EQ(meter.kbit_per_second(), 0U) << "a quarter of a second tells what a buffer took";
}

TEST(RateMeter, MeasuresASteadyLine) {
  RateMeter meter;
  carry(meter, 5, 9, 40);
  meter.begin_round();
  EXPECT_NEAR(meter.kbit_per_second(), 40'000, 400);
}

TEST(RateMeter, WaitingForOthersDoesNotCount) {
  RateMeter meter;
  carry(meter, 0, 3, 40);
  carry(meter, 8, 9, 40);
  meter.begin_round();
  EXPECT_NEAR(meter.kbit_per_second(), 40'000, 1'000);
}

TEST(RateMeter, ABurstAfterAGapDoesNotCountAsARate) {
  RateMeter meter;
  carry(meter, 0, 2, 10);
  for (int i = 0; i < 20; ++i) meter.add(at(4), kChunk);  // two seconds' worth at once
  carry(meter, 4, 12, 10);
  meter.begin_round();
  EXPECT_LT(meter.kbit_per_second(), 17'000U);
}

TEST(RateMeter, AMostlyIdleLineIsFasterThanItLooks) {
  for (const double busy : {0.5, 0.01}) {
    RateMeter meter;
    for (double time = 0; time < 4; time += 0.1) {  // 10 Mbit/s in bursts
      meter.set_busy(at(time), true);
      meter.add(at(time + 0.1 * busy), kChunk);
      meter.set_busy(at(time + 0.1 * busy), false);
    }
    meter.begin_round();
    EXPECT_NEAR(meter.kbit_per_second(), 10'000 / std::max(busy, 0.25), 600) << busy;
  }
}

TEST(RateMeter, RisesAtOnceAndFallsSlowly) {
  RateMeter meter;
  carry(meter, 0, 4, 20);
  meter.begin_round();
  carry(meter, 10, 14, 80);
  meter.begin_round();
  EXPECT_NEAR(meter.kbit_per_second(), 80'000, 800);
  carry(meter, 20, 24, 16);
  meter.begin_round();
  EXPECT_NEAR(meter.kbit_per_second(), 72'000, 800);
  meter.begin_round();
  EXPECT_NEAR(meter.kbit_per_second(), 72'000, 800) << "a round without payloads says nothing";
}

TEST(RateMeter, ARateOfTerabitsIsReportedAsTheMaximum) {
  RateMeter meter;
  for (int i = 0; i < 100; ++i) meter.add(at(0.01 * i), std::uint64_t{1} << 40);
  meter.begin_round();
  EXPECT_EQ(meter.kbit_per_second(), 1'000'000'000U);
}

}  // namespace
}  // namespace collab::protocol
