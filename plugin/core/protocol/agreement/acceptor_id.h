// Derives a site's next acceptor number from its last one. So the leader knows the site's number in another run.
//
// Pure. Threads: any. Ownership: none.
#pragma once

#include <cstdint>

#include "collab/types.h"

namespace collab::protocol {

// The acceptor that replaces `id` once its memory must not be counted on any more. `process` was drawn at random by the
// site's process. The step is odd, so the numbers repeat only after 2^64 steps.
[[nodiscard]] constexpr AcceptorId acceptor_after(AcceptorId id, std::uint64_t process) {
  return AcceptorId{id.value + (process | 1)};
}

}  // namespace collab::protocol
