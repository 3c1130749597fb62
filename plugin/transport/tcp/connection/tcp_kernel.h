// What the kernel says of a TCP connection, and the pace it is asked to keep.
//
// Apart from tcp_socket.h because the kernel's own header, which has the newer figures, and the C library's cannot be
// included in one file.
// Threads: any. Ownership: sockets belong to the caller.
#pragma once

#include <cstdint>
#include <optional>

#include "collab/clock.h"

namespace collab::tcp {

struct KernelFigures {
  std::uint32_t delivered = 0;  // packets that arrived, selectively acknowledged ones included; wraps
  std::uint32_t resent = 0;     // packets; wraps
  std::uint32_t packet_bytes = 0;
  Duration round_trip{0};  // smoothed; 0: not measured
  bool in_flight = false;  // something is not acknowledged
  std::uint32_t unsent_bytes = 0;
};

// Nothing when the system does not say.
[[nodiscard]] std::optional<KernelFigures> kernel_figures(int fd);

// Payload bytes a second the connection sends at most (SO_MAX_PACING_RATE; what is sent again counts); 0: no limit.
// The kernel's own timers keep it where no `fq` does.
void set_pace(int fd, double bytes_per_second);

}  // namespace collab::tcp
