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

// The process that began later gets the larger number, as far as clocks agree. If two swarms have agreed equally
// often, the larger number stays. `random`: bits that nobody else has drawn. 30 of them are used, because hosts without
// a battery clock all begin at the same time.
[[nodiscard]] RunId run_name(std::chrono::seconds since_1970, std::uint64_t random);
// The next run name of a process whose own would be `own` and that knows of the run `known`. It is larger than both,
// unless no clock can have shown the time in `known`. The increment differs between processes that go on from one run.
[[nodiscard]] RunId run_name_after(RunId known, RunId own);

}  // namespace collab::protocol
