// What a member says that lies: about what it holds, is ready with and has computed, how it gets on, how many sites it
// expects, and things it has said before once more, now and then a hundred times. Some send nothing of their parts in
// exchanges, some say what no site says where it stands. Not about what it has promised or accepted: an agreement by
// quorums bears no such member.
//
// Threads: one. Ownership: what it has said lately.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "collab/transport.h"
#include "core/base/prng.h"
#include "core/wire/messages.h"

namespace collab::sim {

class Liar {
 public:
  explicit Liar(std::uint64_t seed)
      : prng_(seed), withholds_(prng_.chance(0.3)), babbles_(prng_.chance(0.5)), floods_(prng_.chance(0.5)) {}

  // What is sent in the place of `message`, in this order.
  [[nodiscard]] std::vector<TransportMessage> tell(LinkId link, TransportMessage message);

 private:
  // What nobody says in the place of `message`.
  [[nodiscard]] wire::Message babble();
  void note_place(const wire::Message& message);

  Prng prng_;
  bool withholds_;
  bool babbles_;
  bool floods_;
  RoundId round_;  // as of what it said last
  AttemptId attempt_;
  std::map<LinkId, std::deque<std::vector<std::byte>>> said_;
};

}  // namespace collab::sim
