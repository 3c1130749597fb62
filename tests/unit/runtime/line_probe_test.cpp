// What two doctors say to each other, how much is queued, and what rate is seen.
#include "core/runtime/line_probe.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LineProbe, WhatIsSaidArrives) {
  const LineTold told{.word = LineWord::kDialled, .number = 0x0102030405060708, .text = "refused"};
  const std::vector<std::byte> head = encode_line(told);
  const std::string bytes(reinterpret_cast<const char*>(head.data()), head.size());
  EXPECT_EQ(bytes, "collab line 1\x04\x08\x07\x06\x05\x04\x03\x02\x01refused") << "as PROTOCOL.md has it";
  ASSERT_TRUE(decode_line(head).ok());
  EXPECT_EQ(*decode_line(head), told);
  const std::vector<std::byte> longest = encode_line({.word = LineWord::kDialled, .text = std::string(9000, 'x')});
  EXPECT_EQ(decode_line(longest)->text, std::string(500, 'x'));
}

TEST(LineProbe, OtherBytesAreRefused) {
  std::vector<std::byte> head = encode_line({.word = LineWord::kPing});
  for (std::size_t size = 0; size < head.size(); ++size) EXPECT_FALSE(decode_line({head.data(), size}).ok()) << size;
  std::vector<std::byte> unknown = encode_line({.word = static_cast<LineWord>(11)});
  EXPECT_EQ(decode_line(unknown).status().code(), StatusCode::kCorrupt);
  std::vector<std::byte> large = head;
  large.resize(head.size() + 501);
  EXPECT_FALSE(decode_line(large).ok());
  head[0] ^= std::byte{1};
  EXPECT_FALSE(decode_line(head).ok());
}

TEST(LineProbe, ASlowLineHasLittleQueuedAndAFastOneEnough) {
  LineSender sender;
  sender.begin(TimePoint(seconds(5)));
  sender.queued(sender.due(TimePoint()));
  EXPECT_EQ(sender.on_its_way(), LineSender::kFirst);
  EXPECT_EQ(sender.due(TimePoint()), 0U) << "until something has left";
  for (std::size_t i = 0; i < 10'000; ++i) {
    sender.sent();
    sender.queued(sender.due(TimePoint()));
    ASSERT_LE(sender.on_its_way(), LineSender::kFirst + (i + 1) / 2) << i;
  }
  EXPECT_EQ(sender.on_its_way(), LineSender::kMost);
  sender.sent();
  EXPECT_EQ(sender.due(TimePoint(seconds(5))), 0U) << "the time is over";
}

TEST(LineProbe, TheRateIsThatOfTheLaterHalf) {
  LineMeter meter;
  meter.begin(TimePoint(seconds(1)));
  EXPECT_EQ(meter.bits_a_second(TimePoint(seconds(11))), 0);
  for (int i = 1; i <= 50; ++i) meter.arrived(TimePoint(seconds(1) + milliseconds(100 * i)), 1'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(11))), 80'000) << "all there is, where nothing comes later";
  for (int i = 1; i <= 50; ++i) meter.arrived(TimePoint(seconds(6) + milliseconds(100 * i)), 5'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(11))), 400'000);
}

TEST(LineProbe, SoManyArrivalsAreCounted) {
  LineMeter meter;
  meter.begin(TimePoint());
  for (std::size_t i = 0; i < LineMeter::kMostArrivals; ++i) meter.arrived(TimePoint(seconds(1)), 1);
  meter.arrived(TimePoint(seconds(2)), 1'000'000'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(2))), 8.0 * LineMeter::kMostArrivals);
}

TEST(LineProbe, OneArrivalIsMeasuredFromTheBeginning) {
  LineMeter meter;
  meter.begin(TimePoint(seconds(1)));
  meter.arrived(TimePoint(seconds(5)), 500'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(6))), 1e6);
}

}  // namespace
}  // namespace collab
