// How a site's next acceptor number follows from the one before. So its leader knows which one it has in another run.
//
// Pure. Threads: any. Ownership: none.
#pragma once

#include <cstdint>

#include "collab/types.h"

namespace collab::protocol {

// What follows it once that memory is not to be counted on any more, in the process that has drawn this number: by an
// odd step, so that it does not come round to an identity again.
[[nodiscard]] constexpr AcceptorId acceptor_after(AcceptorId id, std::uint64_t process) {
  return AcceptorId{id.value + (process | 1)};
}

}  // namespace collab::protocol
