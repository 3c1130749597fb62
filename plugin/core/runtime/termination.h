// SIGTERM as a wish to leave: the process may finish its step and hand over what it has, within a limit.
//
// Installed only where SIGTERM would have its default effect; a handler the script sets later replaces ours. A second
// SIGTERM, and one to a forked child, act at once. Threads: the handler interrupts any thread; one more waits, asleep,
// for the limit. Ownership: the process's disposition of SIGTERM, once.
#pragma once

#include <chrono>

namespace collab {

// After SIGTERM the process is ended by it when `limit` has passed, whatever it does meanwhile. False: somebody else
// handles or ignores SIGTERM already. Calls after the first only change the limit.
bool watch_for_termination(std::chrono::milliseconds limit);
// SIGTERM has come.
[[nodiscard]] bool termination_requested();
// Ends the process as SIGTERM does by default.
[[noreturn]] void carry_out_termination();

}  // namespace collab
