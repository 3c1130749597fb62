// What a site begins with, of what its earlier processes have left: in its record, in shared memory, in its state file.
//
// An anchor comes with the membership that it was agreed on with, or a minority could take it for what is its own to go
// on from. Only a run that has ended here in good order is waited for no more. Threads and ownership: a pure function,
// which the simulator's sites call too.
#pragma once

#include <optional>

#include "core/arena/arena.h"
#include "core/wire/messages.h"

namespace collab {

// Each may be missing, whatever becomes of the others.
struct Remains {
  struct State {
    wire::Offer anchor;
    wire::Record record{};  // kept beside it
    bool ended = false;     // nobody waits for its membership
  };
  std::optional<wire::Record> record{};
  std::optional<SealedAnchor> arena{};
  std::optional<State> state{};
};

struct Beginning {
  wire::Record record;                   // what the site says that it knows
  std::optional<SealedAnchor> anchor{};  // the newest, with its membership; none: the site has its parameters alone
  bool from_state = false;               // where that is; else in shared memory
};

// `fresh`: the memory that begins where there is no record.
[[nodiscard]] Beginning begin_with(const Remains& remains, AcceptorId fresh);

}  // namespace collab
