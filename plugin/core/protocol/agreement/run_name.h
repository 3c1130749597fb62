// The name of the first run that a coordinator's process begins; it counts up from there. No two processes may use the
// same name, because nothing may be agreed on twice under one name. A clock alone is not enough: clocks are set back,
// and several processes may begin at once.
//
// Pure. Threads: any.
#pragma once

#include <chrono>
#include <cstdint>

#include "collab/types.h"

namespace collab::protocol {

// The process that began later gets the larger number, as far as clocks agree: of two swarms that have agreed equally
// often, that one stays. `random`: bits that nobody else has drawn. Seconds leave room for 30 of them: hosts without a
// clock of their own all begin at the same time.
[[nodiscard]] RunId run_name(std::chrono::seconds since_1970, std::uint64_t random);
// The next one of a process that was to take `own`, where it knows of `known`: larger than both, unless no clock has
// ever shown what `known` says. What is added keeps those apart that go on from the same run.
[[nodiscard]] RunId run_name_after(RunId known, RunId own);

}  // namespace collab::protocol
