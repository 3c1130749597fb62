#include "tools/lab/packet.h"

namespace collab::lab {
namespace {

constexpr std::uint8_t kEchoReply = 0;
constexpr std::uint8_t kUnreachable = 3;
constexpr std::uint8_t kEchoRequest = 8;
constexpr std::uint8_t kTimeExceeded = 11;
constexpr std::uint8_t kParameterProblem = 12;

// The flow of the packet whose IP header is `bytes` and whose next header begins at `header`. It reads only ports and
// identifiers, as an ICMP error quotes no more.
std::optional<Flow> flow_of(std::span<const std::uint8_t> bytes, std::size_t header) {
  const std::uint8_t protocol = bytes[9];
  Flow flow{protocol, read_u32(bytes, 12), 0, read_u32(bytes, 16), 0};
  if (protocol == kTcp || protocol == kUdp) {
    if (bytes.size() < header + 4) return std::nullopt;
    flow.local_port = read_u16(bytes, header);
    flow.remote_port = read_u16(bytes, header + 2);
    return flow;
  }
  if (protocol == kIcmp) {
    if (bytes.size() < header + 8) return std::nullopt;
    if (bytes[header] != kEchoRequest && bytes[header] != kEchoReply) return std::nullopt;
    flow.local_port = flow.remote_port = read_u16(bytes, header + 4);
    return flow;
  }
  return flow;  // for other protocols, only addresses distinguish flows
}

std::optional<std::size_t> ip_header_size(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kIpHeader || bytes[0] >> 4 != 4) return std::nullopt;
  const std::size_t size = std::size_t{4} * (bytes[0] & 0xF);
  if (size < kIpHeader || size > bytes.size()) return std::nullopt;
  return size;
}

}  // namespace

std::optional<PacketView> view_of(std::span<const std::uint8_t> bytes) {
  const std::optional<std::size_t> header = ip_header_size(bytes);
  if (!header) return std::nullopt;
  PacketView view;
  view.source = read_u32(bytes, 12);
  view.destination = read_u32(bytes, 16);
  view.protocol = bytes[9];
  view.later_fragment = (read_u16(bytes, 6) & 0x1FFF) != 0;
  if (view.later_fragment) return view;
  view.flow = flow_of(bytes, *header);
  if (view.protocol == kTcp && bytes.size() >= *header + 14) {
    const std::uint8_t flags = bytes[*header + 13];
    view.opens_tcp = (flags & 0x02) != 0 && (flags & 0x10) == 0;
  }
  if (view.protocol == kIcmp && bytes.size() >= *header + 8) {
    const std::uint8_t type = bytes[*header];
    view.asks = type == kEchoRequest;
    if (type == kUnreachable || type == kTimeExceeded || type == kParameterProblem) {
      const std::span<const std::uint8_t> quoted = bytes.subspan(*header + 8);
      if (const std::optional<std::size_t> inner = ip_header_size(quoted)) view.about_flow = flow_of(quoted, *inner);
    }
  }
  return view;
}

std::uint16_t read_u16(std::span<const std::uint8_t> bytes, std::size_t at) {
  return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

std::uint32_t read_u32(std::span<const std::uint8_t> bytes, std::size_t at) {
  return static_cast<std::uint32_t>(read_u16(bytes, at)) << 16 | read_u16(bytes, at + 2);
}

void write_u16(std::span<std::uint8_t> bytes, std::size_t at, std::uint16_t value) {
  bytes[at] = static_cast<std::uint8_t>(value >> 8);
  bytes[at + 1] = static_cast<std::uint8_t>(value);
}

void write_u32(std::span<std::uint8_t> bytes, std::size_t at, std::uint32_t value) {
  write_u16(bytes, at, static_cast<std::uint16_t>(value >> 16));
  write_u16(bytes, at + 2, static_cast<std::uint16_t>(value));
}

}  // namespace collab::lab
