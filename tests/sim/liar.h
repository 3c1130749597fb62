// What a member says that lies: about what it holds, is ready with and has computed, how it gets on, how many sites it
// expects, and things it has said before once more. Some send nothing of their parts in exchanges. Not about what it
// has promised or accepted: an agreement by quorums bears no such member.
//
// Threads: one. Ownership: what it has said lately.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "collab/transport.h"
#include "core/base/prng.h"

namespace collab::sim {

class Liar {
 public:
  explicit Liar(std::uint64_t seed) : prng_(seed), withholds_(prng_.chance(0.3)) {}

  // What is sent in the place of `message`, in this order.
  [[nodiscard]] std::vector<TransportMessage> tell(LinkId link, TransportMessage message);

 private:
  Prng prng_;
  bool withholds_;
  std::map<LinkId, std::deque<std::vector<std::byte>>> said_;
};

}  // namespace collab::sim
