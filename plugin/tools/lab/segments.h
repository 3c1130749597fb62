// Between the kernel's large TCP segments and packets as they are on a line.
//
// A TUN device with offloads hands over up to 64 KiB of a TCP stream as one and takes as much. What is handed over is
// split before it enters the network, so that each packet has a fate of its own; what comes out together and in
// sequence is joined again, as a network card would. It saves the kernel most of its work per packet. Threads: pure
// functions. Ownership: none.
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

// Appends the packets that `bytes` (without `header`) stand for. Malformed ones are passed on whole.
void split(const OffloadHeader& header, std::span<const std::uint8_t> bytes, std::vector<Packet>& out);

// How many of the first packets the kernel may take as one; at least 1 unless there are none.
[[nodiscard]] std::size_t joinable(std::span<const Packet* const> packets);

// What stands before the payloads of so many joined packets. `bytes` is the header of the first, adjusted, of which
// `size` are used; for a single packet size is 0 and its own bytes are sent as they are.
struct JoinedHeader {
  OffloadHeader offload;
  std::array<std::uint8_t, 80> bytes{};
  std::size_t size = 0;
};
[[nodiscard]] JoinedHeader joined_header(std::span<const Packet* const> packets);

}  // namespace collab::lab
