// One IP packet, and the fields that the emulated network reads: addresses, and what distinguishes flows.
//
// Threads: plain values and pure functions. Ownership: a Packet owns its bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace collab::lab {

using Time = std::chrono::nanoseconds;  // since the lab's start
inline constexpr Time kNever = Time::max();

inline constexpr std::size_t kIpHeader = 20;  // without options; packets with options are not split or joined
inline constexpr std::uint8_t kIcmp = 1;
inline constexpr std::uint8_t kTcp = 6;
inline constexpr std::uint8_t kUdp = 17;

struct Packet {
  std::vector<std::uint8_t> bytes{};  // starts with the IP header
  // The checksum at checksum_start + checksum_offset still lacks the payload's part, as the kernel leaves it to
  // hardware. Both 0: it is complete.
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
};

// Both ends of a flow, seen from one of them. For ICMP, the echo's identifier stands for both ports.
struct Flow {
  std::uint8_t protocol = 0;
  std::uint32_t local = 0;
  std::uint16_t local_port = 0;
  std::uint32_t remote = 0;
  std::uint16_t remote_port = 0;

  auto operator<=>(const Flow&) const = default;
  [[nodiscard]] Flow reversed() const { return {protocol, remote, remote_port, local, local_port}; }
};

// The fields of a packet that the network needs. `flow` is seen from the sender. It is empty for a later fragment, and
// for ICMP other than echo.
struct PacketView {
  std::uint32_t source = 0;
  std::uint32_t destination = 0;
  std::uint8_t protocol = 0;
  bool later_fragment = false;
  bool opens_tcp = false;          // SYN without ACK
  bool asks = false;               // an ICMP echo request
  std::optional<Flow> flow;        // of this packet
  std::optional<Flow> about_flow;  // for an ICMP error: of the packet it is about, seen from that packet's sender
};

// Nothing if the bytes are no IPv4 packet.
[[nodiscard]] std::optional<PacketView> view_of(std::span<const std::uint8_t> bytes);

[[nodiscard]] std::uint16_t read_u16(std::span<const std::uint8_t> bytes, std::size_t at);
[[nodiscard]] std::uint32_t read_u32(std::span<const std::uint8_t> bytes, std::size_t at);
void write_u16(std::span<std::uint8_t> bytes, std::size_t at, std::uint16_t value);
void write_u32(std::span<std::uint8_t> bytes, std::size_t at, std::uint32_t value);

}  // namespace collab::lab
