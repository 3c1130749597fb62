#include "transport/tcp/tcp_kernel.h"

#include <linux/inet_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace collab::tcp {

std::optional<KernelFigures> kernel_figures(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  if (length < offsetof(tcp_info, tcpi_delivered_ce)) return std::nullopt;  // before Linux 4.18
  KernelFigures figures;
  if (getenv("LB_TCP") && info.tcpi_unacked > 0) {
    tcp_bbr_info cc{};
    socklen_t l = sizeof(cc);
    getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, &cc, &l);
    fprintf(stderr,
            "  fd %d st %u unacked %u sacked %u lost %u retrans %u cwnd %u rtt %u minrtt %u pacing %.2f max %.2f "
            "notsent %u rto %u backoff %u bbrbw %.2f pg %u cg %u\n",
            fd, info.tcpi_ca_state, info.tcpi_unacked, info.tcpi_sacked, info.tcpi_lost, info.tcpi_total_retrans,
            info.tcpi_snd_cwnd, info.tcpi_rtt, info.tcpi_min_rtt, (double)info.tcpi_pacing_rate * 8e-6,
            (double)info.tcpi_max_pacing_rate * 8e-6, info.tcpi_notsent_bytes, info.tcpi_rto, info.tcpi_backoff,
            (double)cc.bbr_bw_lo * 8e-6, cc.bbr_pacing_gain, cc.bbr_cwnd_gain);
  }  // TEMP
  figures.delivered = info.tcpi_delivered;
  figures.resent = info.tcpi_total_retrans;
  figures.packet_bytes = info.tcpi_snd_mss;
  figures.round_trip = std::chrono::microseconds(info.tcpi_rtt);
  figures.in_flight = info.tcpi_unacked > 0;
  return figures;
}

void set_pace(int fd, double bytes_per_second) {
  constexpr double kLeast = 1000;
  unsigned long rate = ~0UL;
  if (bytes_per_second > 0) rate = static_cast<unsigned long>(std::max(bytes_per_second, kLeast));
  ::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

}  // namespace collab::tcp
