#include "transport/tcp/connection/tcp_kernel.h"

#include <linux/inet_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace collab::tcp {

std::optional<KernelFigures> kernel_figures(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  if (length < offsetof(tcp_info, tcpi_delivered_ce)) return std::nullopt;  // older than Linux 4.18
  KernelFigures figures;
  figures.delivered = info.tcpi_delivered;
  figures.resent = info.tcpi_total_retrans;
  figures.packet_bytes = info.tcpi_snd_mss;
  figures.round_trip = std::chrono::microseconds(info.tcpi_rtt);
  figures.in_flight = info.tcpi_unacked > 0;
  figures.unsent_bytes = info.tcpi_notsent_bytes;
  return figures;
}

void set_pace(int fd, double bytes_per_second) {
  constexpr double kLeast = 1000;
  unsigned long rate = ~0UL;
  if (bytes_per_second > 0) rate = static_cast<unsigned long>(std::max(bytes_per_second, kLeast));
  ::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

}  // namespace collab::tcp
