#include "tools/lab/nat.h"

#include <gtest/gtest.h>

#include "tests/unit/lab/packets.h"

namespace collab::lab {
namespace {

constexpr std::size_t kInside = 0, kOutside = 1, kStranger = 2;
constexpr std::uint8_t kRequest = 8, kReply = 0, kUnreachable = 3;

class NatTest : public ::testing::Test {
 protected:
  void out(const Packet& packet, Time now = Time::zero()) { nat.went_out(now, *view_of(packet.bytes)); }
  bool in(const Packet& packet, Time now = Time::zero()) { return nat.lets_in(now, *view_of(packet.bytes)); }
  Nat nat;
};

TEST_F(NatTest, NoOutsiderOpensATcpConnection) {
  EXPECT_FALSE(in(tcp(kOutside, kInside, 4000, 80, kSyn)));
  EXPECT_FALSE(in(tcp(kOutside, kInside, 4000, 80, kAckFlag)));
  EXPECT_FALSE(in(tcp(kOutside, kInside, 4000, 80, kSyn | kAckFlag)));
}

TEST_F(NatTest, AnOpenedConnectionIsAnswered) {
  out(tcp(kInside, kOutside, 4000, 80, kSyn));
  EXPECT_TRUE(in(tcp(kOutside, kInside, 80, 4000, kSyn | kAckFlag)));
  EXPECT_TRUE(in(tcp(kOutside, kInside, 80, 4000, kAckFlag, 1000)));
  EXPECT_FALSE(in(tcp(kStranger, kInside, 80, 4000, kAckFlag)));
  EXPECT_FALSE(in(tcp(kOutside, kInside, 81, 4000, kAckFlag)));
  EXPECT_FALSE(in(tcp(kOutside, kInside, 80, 4001, kAckFlag)));
}

TEST_F(NatTest, DiallingEachOtherAtOnceOpensNothing) {
  out(tcp(kInside, kOutside, 4000, 80, kSyn));
  EXPECT_FALSE(in(tcp(kOutside, kInside, 80, 4000, kSyn)));
}

TEST_F(NatTest, DatagramsComeInOnlyAsAnswers) {
  EXPECT_FALSE(in(udp(kOutside, kInside, 53, 4000)));
  out(udp(kInside, kOutside, 4000, 53));
  EXPECT_TRUE(in(udp(kOutside, kInside, 53, 4000)));
  EXPECT_FALSE(in(udp(kStranger, kInside, 53, 4000)));
}

TEST_F(NatTest, EchoRepliesComeInOnlyAsAnswers) {
  EXPECT_FALSE(in(echo(kOutside, kInside, kRequest, 7)));
  EXPECT_FALSE(in(echo(kOutside, kInside, kReply, 7)));
  out(echo(kInside, kOutside, kRequest, 7));
  EXPECT_TRUE(in(echo(kOutside, kInside, kReply, 7)));
  EXPECT_FALSE(in(echo(kOutside, kInside, kReply, 8)));
  EXPECT_FALSE(in(echo(kOutside, kInside, kRequest, 7)));
}

TEST_F(NatTest, AComplaintComesInWhenItIsAboutAKnownFlow) {
  const Packet ours = udp(kInside, kOutside, 4000, 53);
  EXPECT_FALSE(in(complaint(kOutside, kInside, kUnreachable, ours)));
  out(ours);
  EXPECT_TRUE(in(complaint(kOutside, kInside, kUnreachable, ours)));
  EXPECT_FALSE(in(complaint(kOutside, kInside, kUnreachable, udp(kInside, kOutside, 4001, 53))));
}

TEST_F(NatTest, ASilentFlowIsForgotten) {
  out(udp(kInside, kOutside, 4000, 53));
  out(tcp(kInside, kOutside, 4000, 80, kSyn));
  EXPECT_TRUE(in(udp(kOutside, kInside, 53, 4000), Nat::kUdpMemory));
  EXPECT_TRUE(in(udp(kOutside, kInside, 53, 4000), 2 * Nat::kUdpMemory));  // the answer renewed it
  EXPECT_FALSE(in(udp(kOutside, kInside, 53, 4000), 3 * Nat::kUdpMemory + Time(1)));
  EXPECT_TRUE(in(tcp(kOutside, kInside, 80, 4000, kAckFlag), 3 * Nat::kUdpMemory + Time(1)));
}

TEST(PacketView, BytesThatAreNoIpAreRefused) {
  EXPECT_FALSE(view_of({}));
  std::vector<std::uint8_t> bytes(40, 0);
  EXPECT_FALSE(view_of(bytes));
  bytes[0] = 0x60;
  EXPECT_FALSE(view_of(bytes));
  bytes[0] = 0x4F;  // a header of 60 bytes in a packet of 40
  EXPECT_FALSE(view_of(bytes));
  bytes[0] = 0x44;  // a header of 16 bytes
  EXPECT_FALSE(view_of(bytes));
}

TEST(PacketView, ShortPacketsHaveNoFlow) {
  for (std::size_t size = 20; size < 48; ++size) {
    for (const std::uint8_t protocol : {kTcp, kUdp, kIcmp}) {
      Packet packet = ip_packet(protocol, 0, 1, size);
      if (protocol == kIcmp && size > 20) packet.bytes[20] = kUnreachable;
      const std::optional<PacketView> view = view_of(packet.bytes);
      ASSERT_TRUE(view);
      EXPECT_EQ(view->flow.has_value(), protocol != kIcmp && size >= 24);
      EXPECT_FALSE(view->about_flow);
    }
  }
}

}  // namespace
}  // namespace collab::lab
