// Packets as the lab's tests send them.
#pragma once

#include <algorithm>

#include "tools/lab/packet.h"

namespace collab::lab {

inline constexpr std::uint32_t kBase = 10U << 24 | 99U << 16;
inline constexpr std::uint8_t kSyn = 0x02, kAckFlag = 0x10, kPush = 0x08, kFinish = 0x01;

// The address of a host of a lab at kBase.
inline std::uint32_t host_address(std::size_t host) { return kBase + 1 + static_cast<std::uint32_t>(host); }

inline Packet ip_packet(std::uint8_t protocol, std::size_t from, std::size_t to, std::size_t size) {
  Packet packet;
  packet.bytes.assign(size, 0);
  packet.bytes[0] = 0x45;
  write_u16(packet.bytes, 2, static_cast<std::uint16_t>(size));
  packet.bytes[8] = 64;
  packet.bytes[9] = protocol;
  write_u32(packet.bytes, 12, host_address(from));
  write_u32(packet.bytes, 16, host_address(to));
  return packet;
}

inline Packet with_ports(Packet packet, std::uint16_t source, std::uint16_t destination) {
  write_u16(packet.bytes, 20, source);
  write_u16(packet.bytes, 22, destination);
  return packet;
}

inline Packet udp(std::size_t from, std::size_t to, std::uint16_t source, std::uint16_t destination,
                  std::size_t size = 100) {
  return with_ports(ip_packet(kUdp, from, to, size), source, destination);
}

// `number` is the sequence number; the payload's bytes count up from it.
inline Packet tcp(std::size_t from, std::size_t to, std::uint16_t source, std::uint16_t destination, std::uint8_t flags,
                  std::size_t payload = 0, std::uint32_t number = 0) {
  Packet packet = with_ports(ip_packet(kTcp, from, to, 40 + payload), source, destination);
  write_u32(packet.bytes, 24, number);
  packet.bytes[32] = 5 << 4;
  packet.bytes[33] = flags;
  for (std::size_t i = 0; i < payload; ++i) packet.bytes[40 + i] = static_cast<std::uint8_t>(number + i);
  packet.checksum_start = 20;
  packet.checksum_offset = 16;
  return packet;
}

inline Packet echo(std::size_t from, std::size_t to, std::uint8_t type, std::uint16_t identifier) {
  Packet packet = ip_packet(kIcmp, from, to, 60);
  packet.bytes[20] = type;
  write_u16(packet.bytes, 24, identifier);
  return packet;
}

// An ICMP error of that type that quotes the start of `about`.
inline Packet complaint(std::size_t from, std::size_t to, std::uint8_t type, const Packet& about) {
  Packet packet = ip_packet(kIcmp, from, to, 28 + 28);
  packet.bytes[20] = type;
  std::copy_n(about.bytes.begin(), 28, packet.bytes.begin() + 28);
  return packet;
}

}  // namespace collab::lab
