// Converts between the kernel's large TCP segments and packets of a line's size.
//
// A TUN device with offloads hands over, and takes, up to 64 KiB of a TCP stream as one segment. Segments are split
// before they enter the network, so that each packet has its own fate. Packets that come out together and in sequence
// are joined again, as a network card does. This saves the kernel most of its work per packet. Threads: pure functions.
// Ownership: none.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "tools/lab/packet.h"

namespace collab::lab {

// The kernel's virtio_net_hdr, whose own header is not C++. It precedes each packet that is read from or written to the
// device.
struct OffloadHeader {
  static constexpr std::uint8_t kNeedsChecksum = 1;
  static constexpr std::uint8_t kGsoTcp4 = 1;
  std::uint8_t flags = 0;
  std::uint8_t gso_type = 0;
  std::uint16_t hdr_len = 0;
  std::uint16_t gso_size = 0;
  std::uint16_t csum_start = 0;
  std::uint16_t csum_offset = 0;
};
static_assert(sizeof(OffloadHeader) == 10);

// Splits `bytes` (without `header`) into packets and appends them to `out`. Malformed bytes are passed on whole.
void split(const OffloadHeader& header, std::span<const std::uint8_t> bytes, std::vector<Packet>& out);

// How many packets from the first on the kernel may take as one segment; at least 1 unless there are no packets.
[[nodiscard]] std::size_t joinable(std::span<const Packet* const> packets);

// The header before the payloads of joined packets. The first `size` bytes of `bytes` are the first packet's header,
// adjusted. For a single packet, size is 0 and its own bytes are sent unchanged.
struct JoinedHeader {
  OffloadHeader offload;
  std::array<std::uint8_t, 80> bytes{};
  std::size_t size = 0;
};
[[nodiscard]] JoinedHeader joined_header(std::span<const Packet* const> packets);

}  // namespace collab::lab
