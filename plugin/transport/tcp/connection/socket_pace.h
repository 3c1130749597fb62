// The pace that a connection's socket was asked to keep, and what the kernel told of it last.
//
// Threads: one at a time. Ownership: plain values, a connection's own; the socket belongs to the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/tcp/connection/tcp_kernel.h"
#include "transport/tcp/connection/tcp_socket.h"

namespace collab::tcp {

class SocketPace {
 public:
  struct Progress {  // in bytes
    std::uint64_t delivered = 0;
    std::uint64_t resent = 0;
  };
  // Since the last look. Nothing when the system does not say.
  [[nodiscard]] std::optional<Progress> look(int fd);
  // As of that look; 0: nothing is on its way, or it was not measured.
  [[nodiscard]] Duration round_trip() const {
    return figures_ && figures_->in_flight ? figures_->round_trip : Duration(0);
  }
  // Small changes are not worth a system call. `unsent`: bytes that the system takes beyond what is on its way.
  void keep(int fd, double bytes_per_second, std::size_t unsent);

 private:
  std::optional<KernelFigures> figures_;
  std::size_t unsent_ = kUnsentBytes;
  double pace_ = 0;  // 0: none
};

}  // namespace collab::tcp
