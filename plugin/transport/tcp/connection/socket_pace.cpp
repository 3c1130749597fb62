#include "transport/tcp/connection/socket_pace.h"

#include <cmath>
#include <utility>

namespace collab::tcp {
namespace {

constexpr double kWorthSetting = 0.005;  // relative change of the pace

}  // namespace

std::optional<SocketPace::Progress> SocketPace::look(int fd) {
  const std::optional<KernelFigures> now = kernel_figures(fd);
  if (!now) return std::nullopt;
  const KernelFigures last = std::exchange(figures_, now).value_or(*now);
  return Progress{std::uint64_t{now->delivered - last.delivered} * now->packet_bytes,
                  std::uint64_t{now->resent - last.resent} * now->packet_bytes};
}

void SocketPace::keep(int fd, double bytes_per_second, std::size_t unsent) {
  if (std::exchange(unsent_, unsent) != unsent) hold_unsent(fd, unsent);
  if (std::abs(bytes_per_second - pace_) <= kWorthSetting * bytes_per_second) return;
  pace_ = bytes_per_second;
  set_pace(fd, bytes_per_second);
}

}  // namespace collab::tcp
