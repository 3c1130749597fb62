// The pace set for a connection's socket, and the kernel's latest figures.
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
  // The progress since the last call. Nothing if the system does not tell.
  [[nodiscard]] std::optional<Progress> look(int fd);
  // The round trip at the last look(); 0: nothing is in flight, or it was not measured.
  [[nodiscard]] Duration round_trip() const {
    return figures_ && figures_->in_flight ? figures_->round_trip : Duration(0);
  }
  // Sets the pace; ignores small changes, which are not worth a system call. `unsent`: bytes that the socket may hold
  // beyond those in flight.
  void keep(int fd, double bytes_per_second, std::size_t unsent);

 private:
  std::optional<KernelFigures> figures_;
  std::size_t unsent_ = kUnsentBytes;
  double pace_ = 0;  // 0: none
};

}  // namespace collab::tcp
