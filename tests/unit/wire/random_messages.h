// Valid messages of every type, drawn from a seed: the raw material of round trips and of fuzzing.
//
// Threads: one Prng, one caller.
#pragma once

#include "core/base/prng.h"
#include "core/wire/messages.h"

namespace collab::wire {

// Message type `type` (1 to std::variant_size_v<Message>), within all bounds and rules.
[[nodiscard]] Message random_message(std::size_t type, Prng& prng);

[[nodiscard]] Record random_record(Prng& prng);

}  // namespace collab::wire
