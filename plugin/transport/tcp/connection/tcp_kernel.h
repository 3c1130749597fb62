// The kernel's figures of a TCP connection, and its pace limit.
//
// Separate from tcp_socket.h: the kernel's own header has newer figures, but no file can include both it and the C
// library's header.
// Threads: any. Ownership: sockets belong to the caller.
#pragma once

#include <cstdint>
#include <optional>

#include "collab/clock.h"

namespace collab::tcp {

struct KernelFigures {
  std::uint32_t delivered = 0;  // packets that arrived, including selectively acknowledged ones; wraps
  std::uint32_t resent = 0;     // packets; wraps
  std::uint32_t packet_bytes = 0;
  Duration round_trip{0};  // smoothed; 0: not measured
  bool in_flight = false;  // some data is not acknowledged
  std::uint32_t unsent_bytes = 0;
};

// Nothing if the system does not tell.
[[nodiscard]] std::optional<KernelFigures> kernel_figures(int fd);

// Limits the payload bytes per second that the connection sends, including those sent again (SO_MAX_PACING_RATE); 0: no
// limit. Without the `fq` queue discipline, the kernel's own timers enforce the limit.
void set_pace(int fd, double bytes_per_second);

}  // namespace collab::tcp
