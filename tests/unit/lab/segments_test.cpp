#include "tools/lab/segments.h"

#include <gtest/gtest.h>

#include "tests/unit/lab/packets.h"

namespace collab::lab {
namespace {

std::vector<const Packet*> pointers(const std::vector<Packet>& packets) {
  std::vector<const Packet*> out;
  for (const Packet& packet : packets) out.push_back(&packet);
  return out;
}

OffloadHeader large(std::uint16_t piece) {
  OffloadHeader header;
  header.flags = OffloadHeader::kNeedsChecksum;
  header.gso_type = OffloadHeader::kGsoTcp4;
  header.gso_size = piece;
  return header;
}

std::uint32_t sum_of(std::span<const std::uint8_t> bytes, std::uint32_t sum = 0) {
  for (std::size_t at = 0; at + 1 < bytes.size(); at += 2) sum += read_u16(bytes, at);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum;
}

TEST(Segments, ALargeOneBecomesPacketsOfTheLine) {
  Packet whole = tcp(0, 1, 10, 20, kAckFlag | kPush | kFinish, 2500, 7000);
  write_u16(whole.bytes, 4, 0xFFFF);  // the identification wraps
  std::vector<Packet> out;
  split(large(1000), whole.bytes, out);
  ASSERT_EQ(out.size(), 3U);
  const std::size_t sizes[] = {1040, 1040, 540};
  for (std::size_t i = 0; i < 3; ++i) {
    const Packet& each = out[i];
    ASSERT_EQ(each.bytes.size(), sizes[i]);
    EXPECT_EQ(read_u16(each.bytes, 2), sizes[i]);
    EXPECT_EQ(read_u16(each.bytes, 4), static_cast<std::uint16_t>(0xFFFF + i));
    EXPECT_EQ(read_u32(each.bytes, 24), 7000 + 1000 * i);
    EXPECT_EQ(each.bytes[33], i == 2 ? kAckFlag | kPush | kFinish : kAckFlag);
    EXPECT_EQ(each.bytes[40], static_cast<std::uint8_t>(7000 + 1000 * i));
    EXPECT_EQ(sum_of(std::span(each.bytes).first(20)), 0xFFFFU) << "IP checksum";
    // What the kernel leaves for hardware: the sum of the pseudo header, not complemented.
    const std::uint32_t pseudo =
        sum_of(std::span(each.bytes).subspan(12, 8), kTcp + static_cast<std::uint32_t>(sizes[i]) - 20);
    EXPECT_EQ(read_u16(each.bytes, 36), pseudo);
  }
}

TEST(Segments, SplittingAndJoiningIsTheIdentity) {
  const Packet whole = tcp(0, 1, 10, 20, kAckFlag | kPush, 14480, 1);
  std::vector<Packet> parts;
  split(large(1448), whole.bytes, parts);
  ASSERT_EQ(parts.size(), 10U);
  const std::vector<const Packet*> all = pointers(parts);
  ASSERT_EQ(joinable(all), 10U);
  const JoinedHeader joined = joined_header(all);
  EXPECT_EQ(joined.size, 40U);
  EXPECT_EQ(joined.offload.gso_size, 1448);
  EXPECT_EQ(joined.offload.gso_type, OffloadHeader::kGsoTcp4);
  EXPECT_EQ(joined.bytes[33], kAckFlag | kPush);
  EXPECT_EQ(read_u16(joined.bytes, 2), 14520);
}

TEST(Segments, OnlyNeighboursInSequenceJoin) {
  const auto row = [](std::initializer_list<Packet> packets) {
    const std::vector<Packet> list(packets);
    return joinable(pointers(list));
  };
  const Packet first = tcp(0, 1, 10, 20, kAckFlag, 1000, 0);
  EXPECT_EQ(row({first, tcp(0, 1, 10, 20, kAckFlag, 1000, 1000)}), 2U);
  EXPECT_EQ(row({first, tcp(0, 1, 10, 20, kAckFlag, 1000, 2000)}), 1U) << "one between was lost";
  EXPECT_EQ(row({first, tcp(0, 1, 11, 20, kAckFlag, 1000, 1000)}), 1U) << "another stream";
  EXPECT_EQ(row({first, tcp(0, 1, 10, 20, kAckFlag | kFinish, 1000, 1000)}), 1U) << "other flags";
  EXPECT_EQ(row({first, tcp(0, 1, 10, 20, kAckFlag, 1001, 1000)}), 1U) << "longer than the first";
  EXPECT_EQ(row({first, tcp(0, 1, 10, 20, kAckFlag, 500, 1000), tcp(0, 1, 10, 20, kAckFlag, 500, 1500)}), 2U)
      << "a short one ends the row";
  EXPECT_EQ(row({tcp(0, 1, 10, 20, kAckFlag), tcp(0, 1, 10, 20, kAckFlag)}), 1U) << "acknowledgements stay apart";
  EXPECT_EQ(row({udp(0, 1, 1, 2), udp(0, 1, 1, 2)}), 1U);
  EXPECT_EQ(row({}), 0U);
}

TEST(Segments, AJoinedSegmentNeverGrowsOver64KiB) {
  std::vector<Packet> packets;
  for (std::uint32_t i = 0; i < 100; ++i) packets.push_back(tcp(0, 1, 10, 20, kAckFlag, 8000, 8000 * i));
  EXPECT_EQ(joinable(pointers(packets)), 8U);
}

TEST(Segments, OtherPacketsPassAsTheyAre) {
  OffloadHeader header;
  std::vector<Packet> out;
  const Packet datagram = udp(0, 1, 1, 2);
  split(header, datagram.bytes, out);
  header = large(0);  // malformed: no size
  header.csum_start = 20;
  header.csum_offset = 16;
  const Packet segment = tcp(0, 1, 1, 2, kAckFlag, 100);
  split(header, segment.bytes, out);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].bytes, datagram.bytes);
  EXPECT_EQ(out[0].checksum_start, 0);
  EXPECT_EQ(out[1].bytes, segment.bytes);
  EXPECT_EQ(out[1].checksum_offset, 16);
  const JoinedHeader alone = joined_header(std::vector<const Packet*>{&out[1]});
  EXPECT_EQ(alone.size, 0U);
  EXPECT_EQ(alone.offload.flags, OffloadHeader::kNeedsChecksum);
}

}  // namespace
}  // namespace collab::lab
