// A home router's filter: it lets in only answers to earlier outgoing packets.
//
// It does not rewrite addresses. It only keeps others from reaching the host first, as this is what matters to a peer
// that dials. A TCP connection can never be opened from outside, not even when both ends dial each other at once.
// Threads: one owner. Ownership: owns its table.
#pragma once

#include <map>

#include "tools/lab/packet.h"

namespace collab::lab {

class Nat {
 public:
  // How long a silent flow is remembered (RFC 4787 and RFC 5382 ask for at least this for UDP and TCP).
  static constexpr Time kUdpMemory = std::chrono::minutes(2);
  static constexpr Time kTcpMemory = std::chrono::minutes(124);

  void went_out(Time now, const PacketView& packet);
  [[nodiscard]] bool lets_in(Time now, const PacketView& packet);

 private:
  [[nodiscard]] bool knows(Time now, const Flow& flow);
  void forget_old(Time now);

  std::map<Flow, Time> last_used_;  // flows from the inside's point of view
  Time next_sweep_ = Time::zero();
};

}  // namespace collab::lab
