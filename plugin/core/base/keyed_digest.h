// A digest that only a holder of the secret can make: the first 16 bytes of HMAC-SHA256 (RFC 2104).
//
// Threads: pure. Ownership: none.
#pragma once

#include <span>

#include "collab/types.h"

namespace collab {

[[nodiscard]] Digest keyed_digest(const Digest& secret, std::span<const std::byte> bytes);

}  // namespace collab
