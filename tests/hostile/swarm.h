// What a stranger can learn of a swarm by asking: the status report, and what refusals tell of the model.
//
// Threads: the caller's. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/prng.h"
#include "core/wire/messages.h"
#include "tests/hostile/peer.h"

namespace collab::hostile {

struct Swarm {
  std::string coordinator;  // its address
  std::string name;
  std::uint64_t term = 0;
  std::uint32_t generation = 1;
  RunId run;
  RoundId round;
  std::uint64_t elements = 0;
  std::vector<wire::Setting> settings;
  std::vector<wire::Member> members;
  std::vector<wire::ModelEntry> model;  // empty: not learnt

  // The coordinator and all members that can be dialled.
  [[nodiscard]] std::vector<std::string> addresses() const;
};

[[nodiscard]] std::optional<Swarm> ask_swarm(Peer& peer, const std::string& coordinator);
// One entry after another: each refusal of a join names the first thing that differs.
void learn_model(Peer& peer, Swarm& swarm, Prng& prng);

// A Join that the swarm has no reason to refuse. Without `helper` it needs the model.
[[nodiscard]] wire::Join proper_join(const Swarm& swarm, const std::string& name, const std::string& address,
                                     bool helper, Prng& prng);

}  // namespace collab::hostile
