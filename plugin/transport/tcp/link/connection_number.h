// How many data connections one link has: a fixed number, or the one that its search and the peer's have found.
//
// Threads: the transport's IO thread. Ownership: plain values of a link. The engine's NumberSearch decides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/tcp/pace/connection_search.h"
#include "transport/tcp/wire/tcp_wire.h"

namespace collab::tcp {

class ConnectionNumber {
 public:
  ConnectionNumber(std::uint16_t first, bool fixed)
      : fixed_(fixed), search_(first, fixed ? first : kMaxDataConnections) {}

  [[nodiscard]] bool fixed() const { return fixed_; }
  [[nodiscard]] std::uint16_t found() const { return search_.wanted(); }
  // How many data connections the dialler dials.
  [[nodiscard]] std::uint16_t wanted() const { return fixed_ ? found() : std::max(found(), peer_wants_); }
  ConnectionSearch& search() { return search_; }
  void peer_wants(std::uint16_t number) { peer_wants_ = number; }
  // The number last sent to the dialler; 0: none.
  [[nodiscard]] std::uint16_t told() const { return told_; }
  void set_told(std::uint16_t number) { told_ = number; }

 private:
  bool fixed_;
  ConnectionSearch search_;
  std::uint16_t peer_wants_ = 1;
  std::uint16_t told_ = 0;
};

}  // namespace collab::tcp
