// What a site begins with, from what its earlier processes have left: its record, shared memory, its state file.
//
// An anchor comes with the membership that agreed on it. Without that, a minority could go on from it alone. A site
// waits for the others of a run, unless that run has ended here in good order. Threads and ownership: a pure function,
// which the simulator's sites call too.
#pragma once

#include <optional>

#include "core/arena/arena.h"
#include "core/wire/messages.h"

namespace collab {

// Each may be missing, independently of the others.
struct Remains {
  struct State {
    wire::Offer anchor;
    wire::Record record{};  // stored with it
    bool ended = false;     // nobody waits for its membership
  };
  std::optional<wire::Record> record{};
  std::optional<SealedAnchor> arena{};
  std::optional<State> state{};
};

struct Beginning {
  wire::Record record;                   // what the site reports that it knows
  std::optional<SealedAnchor> anchor{};  // the newest, with its membership; none: the site has only its parameters
  bool from_state = false;               // the anchor is in the state file; else in shared memory
};

// `fresh`: the acceptor to begin with if there is no record.
[[nodiscard]] Beginning begin_with(const Remains& remains, AcceptorId fresh);

}  // namespace collab
