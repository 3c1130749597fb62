#include "core/runtime/storage/beginning.h"

#include <utility>

#include "core/protocol/agreement/attempt.h"
#include "core/runtime/storage/anchor_record.h"

namespace collab {

Beginning begin_with(const Remains& remains, AcceptorId fresh) {
  const auto& [record, arena, state] = remains;
  Beginning site{record.value_or(wire::Record()), arena};
  if (site.record.acceptor.value == 0) site.record.acceptor = fresh;
  const auto order = [](const auto& anchor) { return std::pair(anchor.run, anchor.round); };
  // The site may have moved to an older run since the state was saved. Its record shows that.
  const bool went_over = state && arena && state->anchor.run != arena->run && site.record.anchor.run == arena->run;
  if (state && !went_over && (!arena || order(state->anchor) > order(*arena))) {
    site.from_state = true;
    site.anchor = SealedAnchor{state->anchor.run, state->anchor.round, state->anchor.digest, {}};
    // A site that still has its record did not end in good order.
    if (state->ended && site.record.anchor.run != state->anchor.run) return site;
    site.anchor = with_membership(*site.anchor, {state->record.promised, state->record.voters});
  }
  if (site.anchor) take_membership(site.record, *site.anchor);
  return site;
}

}  // namespace collab
