#include "tools/lab/network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/unit/lab/packets.h"

namespace collab::lab {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class NetworkTest : public ::testing::Test {
 protected:
  NetworkSpec spec{.hosts = {{.name = "a"}, {.name = "b"}, {.name = "c"}}, .path = {}, .address_base = kBase};

  Network make() { return Network(spec); }
  static std::vector<Delivery> until(Network& network, Time now) {
    std::vector<Delivery> out;
    network.advance(now, out);
    return out;
  }
};

TEST_F(NetworkTest, DelayIsExactAndOneWay) {
  spec.path.delay = milliseconds(90);
  Network network = make();
  network.send(milliseconds(5), 0, udp(0, 1, 1, 2));
  EXPECT_TRUE(until(network, milliseconds(95) - Time(1)).empty());
  EXPECT_EQ(network.next(), milliseconds(95));
  const std::vector<Delivery> out = until(network, milliseconds(95));
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].to, 1U);
  EXPECT_EQ(out[0].at, milliseconds(95));
  EXPECT_EQ(network.next(), kNever);
}

TEST_F(NetworkTest, RateCountsWholeIpPackets) {
  spec.hosts[0].up = {8};  // a byte a microsecond
  spec.hosts[0].queue = seconds(10);
  Network network = make();
  for (int i = 0; i < 1000; ++i) network.send(Time::zero(), 0, udp(0, 1, 1, 2, 1500));
  const std::vector<Delivery> out = until(network, seconds(10));
  ASSERT_EQ(out.size(), 1000U);
  EXPECT_EQ(out.front().at, microseconds(1500));
  EXPECT_EQ(out.back().at, milliseconds(1500));
}

TEST_F(NetworkTest, TheSlowerOfTheTwoLinesSetsThePace) {
  spec.hosts[0].up = {80};
  spec.hosts[1].down = {8};
  spec.hosts[0].queue = spec.hosts[1].queue = seconds(10);
  Network network = make();
  for (int i = 0; i < 100; ++i) network.send(Time::zero(), 0, udp(0, 1, 1, 2, 1000));
  EXPECT_EQ(until(network, seconds(1)).back().at, microseconds(100 + 100 * 1000));
}

TEST_F(NetworkTest, BeingAskedLateChangesNoTime) {
  spec.hosts[0].up = {10};
  spec.path.delay = milliseconds(20);
  spec.path.jitter = milliseconds(30);
  Network often = make();
  Network late = make();
  std::vector<Delivery> a;
  for (int i = 0; i < 50; ++i) {
    often.send(milliseconds(2 * i), 0, udp(0, 1, 1, 2, 1000));
    late.send(milliseconds(2 * i), 0, udp(0, 1, 1, 2, 1000));
    often.advance(milliseconds(2 * i), a);
  }
  often.advance(seconds(1), a);
  const std::vector<Delivery> b = until(late, seconds(1));
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].at, b[i].at);
}

TEST_F(NetworkTest, AFullQueueDropsWhatComesLast) {
  spec.hosts[0].up = {8};
  spec.hosts[0].queue = milliseconds(100);  // 100 kB
  Network network = make();
  for (int i = 0; i < 200; ++i) network.send(Time::zero(), 0, udp(0, 1, 1, 2, 1000));
  EXPECT_EQ(until(network, seconds(10)).size(), 100U);
  EXPECT_EQ(network.counters(0, 1).dropped_up, 100U);
  EXPECT_EQ(network.counters(0, 1).sent_packets, 200U);
  EXPECT_EQ(network.counters(0, 1).delivered_bytes, 100'000U);
}

TEST_F(NetworkTest, ASlowLineDownHasAQueueToo) {
  spec.hosts[1].down = {8};
  spec.hosts[1].queue = milliseconds(50);
  Network network = make();
  for (int i = 0; i < 200; ++i) network.send(Time::zero(), 0, udp(0, 1, 1, 2, 1000));
  EXPECT_EQ(until(network, seconds(10)).size(), 50U);
  EXPECT_EQ(network.counters(0, 1).dropped_down, 150U);
}

TEST_F(NetworkTest, ANewRateHoldsForWhatWaitsAndForTheRestOfAPacketOnTheLine) {
  spec.hosts[0].up = {8};
  spec.hosts[0].queue = seconds(1);
  Network network = make();
  for (int i = 0; i < 3; ++i) network.send(Time::zero(), 0, udp(0, 1, 1, 2, 1000));
  EXPECT_TRUE(until(network, microseconds(500)).empty());
  network.apply(microseconds(500), SetRate{.host = 0, .down = {}, .up = {0.8}});
  const std::vector<Delivery> out = until(network, seconds(1));
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].at, microseconds(500 + 5000));
  EXPECT_EQ(out[1].at, microseconds(500 + 15000));
  EXPECT_EQ(out[2].at, microseconds(500 + 25000));
}

TEST_F(NetworkTest, LossIsWithinBinomialBoundsAndReproducible) {
  spec.path.loss = 0.01;
  constexpr int kPackets = 30'000;
  const auto lost = [&](std::uint64_t seed) {
    spec.seed = seed;
    Network network = make();
    for (int i = 0; i < kPackets; ++i) network.send(Time(i), 0, udp(0, 1, 1, 2));
    const std::size_t arrived = until(network, seconds(1)).size();
    EXPECT_EQ(arrived + network.counters(0, 1).lost, kPackets);
    return network.counters(0, 1).lost;
  };
  const double deviation = std::sqrt(kPackets * 0.01 * 0.99);
  EXPECT_NEAR(static_cast<double>(lost(1)), kPackets * 0.01, 4 * deviation);
  EXPECT_EQ(lost(1), lost(1));
  EXPECT_NE(lost(1), lost(2));
}

TEST_F(NetworkTest, OtherPathsDoNotChangeAPathsFate) {
  spec.path.loss = 0.5;
  const auto fate = [&](bool others) {
    Network network = make();
    std::vector<bool> arrived;
    for (int i = 0; i < 100; ++i) {
      if (others) network.send(seconds(i), 2, udp(2, 1, 1, 2));
      network.send(seconds(i), 0, udp(0, 1, 1, 2));
      const std::uint64_t before = network.counters(0, 1).delivered_packets;
      until(network, seconds(i));
      arrived.push_back(network.counters(0, 1).delivered_packets > before);
    }
    return arrived;
  };
  EXPECT_EQ(fate(false), fate(true));
}

TEST_F(NetworkTest, JitterNeverOvertakesAndStaysInItsBounds) {
  spec.path.delay = milliseconds(10);
  spec.path.jitter = milliseconds(100);
  Network network = make();
  for (int i = 0; i < 5000; ++i) {
    network.send(milliseconds(i), 0, udp(0, 1, static_cast<std::uint16_t>(i), 2));
  }
  const std::vector<Delivery> out = until(network, seconds(10));
  ASSERT_EQ(out.size(), 5000U);
  Time least = kNever, most{};
  for (int i = 0; i < 5000; ++i) {
    const Delivery& each = out[static_cast<std::size_t>(i)];
    EXPECT_EQ(read_u16(each.packet.bytes, 20), i);
    least = std::min(least, each.at - milliseconds(i));
    most = std::max(most, each.at - milliseconds(i));
  }
  EXPECT_GE(least, milliseconds(10));
  EXPECT_LT(least, milliseconds(20));
  EXPECT_LE(most, milliseconds(110));
  EXPECT_GT(most, milliseconds(100));
}

TEST_F(NetworkTest, HeldBackPacketsAreOvertaken) {
  spec.path.reorder = 0.1;
  Network network = make();
  for (int i = 0; i < 1000; ++i) network.send(milliseconds(i), 0, udp(0, 1, static_cast<std::uint16_t>(i), 2));
  const std::vector<Delivery> out = until(network, seconds(2));
  ASSERT_EQ(out.size(), 1000U);
  std::size_t overtaken = 0;
  for (std::size_t i = 1; i < out.size(); ++i) {
    overtaken += read_u16(out[i].packet.bytes, 20) < read_u16(out[i - 1].packet.bytes, 20);
  }
  EXPECT_GT(overtaken, 50U);
  EXPECT_NEAR(static_cast<double>(network.counters(0, 1).held_back), 100, 40);
}

TEST_F(NetworkTest, DuplicatesAreDeliveredTwice) {
  spec.path.duplicate = 1;
  Network network = make();
  network.send(Time::zero(), 0, udp(0, 1, 1, 2));
  EXPECT_EQ(until(network, seconds(1)).size(), 2U);
  EXPECT_EQ(network.counters(0, 1).delivered_packets, 2U);
}

TEST_F(NetworkTest, ACutHostSpeaksWithNobodyUntilHealed) {
  spec.path.delay = milliseconds(50);
  Network network = make();
  network.send(Time::zero(), 1, udp(1, 0, 1, 2));  // under way when the line is cut
  until(network, milliseconds(10));
  network.apply(milliseconds(10), Cut{.cut = true, .host = 0, .peer = {}});
  network.send(milliseconds(10), 0, udp(0, 1, 1, 2));
  network.send(milliseconds(10), 2, udp(2, 0, 1, 2));
  network.send(milliseconds(10), 2, udp(2, 1, 1, 2));
  const std::vector<Delivery> out = until(network, seconds(1));
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].to, 1U);
  network.apply(seconds(1), Cut{.cut = false, .host = 0, .peer = {}});
  network.send(seconds(1), 0, udp(0, 1, 1, 2));
  EXPECT_EQ(until(network, seconds(2)).size(), 1U);
  EXPECT_EQ(network.counters(1, 0).dropped_cut, 1U);
}

TEST_F(NetworkTest, ACutPairLeavesOthersAloneAndHealHealsAll) {
  Network network = make();
  network.apply(Time::zero(), Cut{.cut = true, .host = 0, .peer = 1});
  const auto send_all = [&](Time now) {
    network.send(now, 0, udp(0, 1, 1, 2));
    network.send(now, 1, udp(1, 0, 1, 2));
    network.send(now, 0, udp(0, 2, 1, 2));
    return until(network, now).size();
  };
  EXPECT_EQ(send_all(seconds(1)), 1U);
  network.apply(seconds(1), Cut{.cut = false, .host = {}, .peer = {}});
  EXPECT_EQ(send_all(seconds(2)), 3U);
}

TEST_F(NetworkTest, APathChangesInOneOrBothDirections) {
  Network network = make();
  PathChange slow;
  slow.delay = milliseconds(100);
  network.apply(Time::zero(), SetPath{.from = 0, .to = 1, .both_ways = false, .change = slow});
  network.send(Time::zero(), 0, udp(0, 1, 1, 2));
  network.send(Time::zero(), 1, udp(1, 0, 1, 2));
  EXPECT_EQ(until(network, milliseconds(99)).size(), 1U);
  EXPECT_EQ(until(network, milliseconds(100)).size(), 1U);
}

TEST_F(NetworkTest, NatIsAskedAtTheFarEnd) {
  spec.hosts[0].nat = true;
  Network network = make();
  network.send(Time::zero(), 1, tcp(1, 0, 5, 80, kSyn));
  EXPECT_TRUE(until(network, seconds(1)).empty());
  EXPECT_EQ(network.counters(1, 0).dropped_nat, 1U);
  network.send(seconds(1), 0, tcp(0, 1, 5, 80, kSyn));
  network.send(seconds(1), 1, tcp(1, 0, 80, 5, kSyn | kAckFlag));
  EXPECT_EQ(until(network, seconds(2)).size(), 2U);
}

TEST_F(NetworkTest, StrayPacketsAreCounted) {
  Network network = make();
  network.send(Time::zero(), 0, udp(0, 7, 1, 2));
  network.send(Time::zero(), 0, udp(0, 0, 1, 2));
  network.send(Time::zero(), 0, Packet{.bytes = {1, 2, 3}});
  EXPECT_EQ(network.without_route(0), 3U);
  EXPECT_EQ(network.next(), kNever);
}

}  // namespace
}  // namespace collab::lab
