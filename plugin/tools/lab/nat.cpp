#include "tools/lab/nat.h"

namespace collab::lab {
namespace {

Time memory_of(const Flow& flow) { return flow.protocol == kTcp ? Nat::kTcpMemory : Nat::kUdpMemory; }

}  // namespace

void Nat::went_out(Time now, const PacketView& packet) {
  if (!packet.flow) return;
  if (packet.protocol == kIcmp && !packet.asks) return;
  forget_old(now);
  last_used_[*packet.flow] = now;
}

bool Nat::lets_in(Time now, const PacketView& packet) {
  if (packet.later_fragment) return true;  // useless without the first fragment, which is filtered
  if (packet.opens_tcp || packet.asks) return false;
  if (packet.about_flow) return knows(now, *packet.about_flow);
  return packet.flow && knows(now, packet.flow->reversed());
}

bool Nat::knows(Time now, const Flow& flow) {
  const auto found = last_used_.find(flow);
  if (found == last_used_.end() || now - found->second > memory_of(flow)) return false;
  found->second = now;
  return true;
}

void Nat::forget_old(Time now) {
  if (now < next_sweep_) return;
  next_sweep_ = now + kUdpMemory;
  std::erase_if(last_used_, [&](const auto& entry) { return now - entry.second > memory_of(entry.first); });
}

}  // namespace collab::lab
