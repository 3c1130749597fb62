#include "tools/lab/segments.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace collab::lab {
namespace {

constexpr std::size_t kMaxTotal = 65535;
constexpr std::size_t kMaxJoined = 64;
constexpr std::uint16_t kTcpChecksum = 16;  // in the TCP header
constexpr std::uint8_t kFin = 0x01, kPsh = 0x08, kAck = 0x10, kCwr = 0x80;

// The size of IP and TCP headers, for TCP over IPv4 without IP options.
std::optional<std::size_t> headers_of(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kIpHeader + 20 || bytes[0] != 0x45 || bytes[9] != kTcp) return std::nullopt;
  const std::size_t tcp = std::size_t{4} * (bytes[kIpHeader + 12] >> 4);
  if (tcp < 20 || bytes.size() < kIpHeader + tcp) return std::nullopt;
  return kIpHeader + tcp;
}

std::uint16_t folded(std::uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// Sets the length, the IP checksum, and the part of the TCP checksum that does not depend on the payload.
void set_total_length(std::span<std::uint8_t> header, std::size_t total) {
  write_u16(header, 2, static_cast<std::uint16_t>(total));
  write_u16(header, 10, 0);
  std::uint32_t sum = 0;
  for (std::size_t at = 0; at < kIpHeader; at += 2) sum += read_u16(header, at);
  write_u16(header, 10, static_cast<std::uint16_t>(~folded(sum)));
  std::uint32_t pseudo = kTcp + static_cast<std::uint32_t>(total - kIpHeader);
  for (std::size_t at = 12; at < kIpHeader; at += 2) pseudo += read_u16(header, at);
  write_u16(header, kIpHeader + kTcpChecksum, folded(pseudo));
}

bool has_partial_tcp_checksum(const Packet& packet) {
  return packet.checksum_start == kIpHeader && packet.checksum_offset == kTcpChecksum;
}

// Compares headers except length, identification, sequence, PSH and checksums.
bool same_headers(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b, std::size_t headers) {
  constexpr std::size_t kSequence = kIpHeader + 4;
  constexpr std::size_t kFlags = kIpHeader + 13;
  const auto equal = [&](std::size_t from, std::size_t to) {
    return std::memcmp(a.data() + from, b.data() + from, to - from) == 0;
  };
  return equal(0, 2) && equal(6, 10) && equal(12, kSequence) && equal(kSequence + 4, kFlags) &&
         ((a[kFlags] ^ b[kFlags]) & ~kPsh) == 0 && equal(kFlags + 1, kIpHeader + kTcpChecksum) &&
         equal(kIpHeader + kTcpChecksum + 2, headers);
}

}  // namespace

void split(const OffloadHeader& header, std::span<const std::uint8_t> bytes, std::vector<Packet>& out) {
  const std::optional<std::size_t> headers = headers_of(bytes);
  const std::size_t piece = header.gso_size;
  if ((header.gso_type & 0x7F) != OffloadHeader::kGsoTcp4 || !headers || piece == 0) {
    Packet packet;
    packet.bytes.assign(bytes.begin(), bytes.end());
    if ((header.flags & OffloadHeader::kNeedsChecksum) != 0) {
      packet.checksum_start = header.csum_start;
      packet.checksum_offset = header.csum_offset;
    }
    out.push_back(std::move(packet));
    return;
  }
  const std::span<const std::uint8_t> payload = bytes.subspan(*headers);
  const std::uint32_t sequence = read_u32(bytes, kIpHeader + 4);
  const std::uint16_t identification = read_u16(bytes, 4);
  for (std::size_t done = 0, index = 0; done < payload.size(); ++index) {
    const std::size_t size = std::min(piece, payload.size() - done);
    Packet packet{.bytes = {}, .checksum_start = kIpHeader, .checksum_offset = kTcpChecksum};
    packet.bytes.reserve(*headers + size);
    packet.bytes.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(*headers));
    const auto begin = payload.begin() + static_cast<std::ptrdiff_t>(done);
    packet.bytes.insert(packet.bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    write_u16(packet.bytes, 4, static_cast<std::uint16_t>(identification + index));
    write_u32(packet.bytes, kIpHeader + 4, sequence + static_cast<std::uint32_t>(done));
    std::uint8_t& flags = packet.bytes[kIpHeader + 13];
    done += size;
    if (done < payload.size()) flags &= static_cast<std::uint8_t>(~(kFin | kPsh));
    if (index > 0) flags &= static_cast<std::uint8_t>(~kCwr);
    set_total_length(packet.bytes, packet.bytes.size());
    out.push_back(std::move(packet));
  }
}

std::size_t joinable(std::span<const Packet* const> packets) {
  if (packets.empty()) return 0;
  const Packet& first = *packets[0];
  const std::optional<std::size_t> headers = headers_of(first.bytes);
  if (!headers || !has_partial_tcp_checksum(first) || (first.bytes[kIpHeader + 13] & ~kPsh) != kAck) return 1;
  const std::size_t piece = first.bytes.size() - *headers;
  if (piece == 0 || *headers > JoinedHeader().bytes.size()) return 1;
  std::uint32_t sequence = read_u32(first.bytes, kIpHeader + 4);
  std::size_t total = *headers;
  std::size_t count = 0;
  for (const Packet* packet : packets) {
    const std::span<const std::uint8_t> bytes = packet->bytes;
    if (count == kMaxJoined || bytes.size() <= *headers || bytes.size() - *headers > piece) break;
    const std::size_t size = bytes.size() - *headers;
    if (!has_partial_tcp_checksum(*packet) || !same_headers(first.bytes, bytes, *headers) || total + size > kMaxTotal ||
        read_u32(bytes, kIpHeader + 4) != sequence) {
      break;
    }
    total += size;
    sequence += static_cast<std::uint32_t>(size);
    ++count;
    if (size < piece || (bytes[kIpHeader + 13] & kPsh) != 0) break;  // a short or pushed packet is the last one to join
  }
  return count;
}

JoinedHeader joined_header(std::span<const Packet* const> packets) {
  const Packet& first = *packets[0];
  JoinedHeader joined;
  if (first.checksum_start != 0) {
    joined.offload.flags = OffloadHeader::kNeedsChecksum;
    joined.offload.csum_start = first.checksum_start;
    joined.offload.csum_offset = first.checksum_offset;
  }
  const std::optional<std::size_t> headers = headers_of(first.bytes);
  if (packets.size() < 2 || !headers) return joined;
  joined.size = *headers;
  std::copy_n(first.bytes.begin(), *headers, joined.bytes.begin());
  joined.bytes[kIpHeader + 13] = packets.back()->bytes[kIpHeader + 13];  // alike except PSH, which the last may have
  std::size_t total = *headers;
  for (const Packet* packet : packets) total += packet->bytes.size() - *headers;
  set_total_length(std::span(joined.bytes).first(*headers), total);
  joined.offload.gso_type = OffloadHeader::kGsoTcp4;
  joined.offload.gso_size = static_cast<std::uint16_t>(first.bytes.size() - *headers);
  joined.offload.hdr_len = static_cast<std::uint16_t>(*headers);
  return joined;
}

}  // namespace collab::lab
