// SIGTERM as a request to leave: the process may finish its step and hand over what it has, within a limit. SIGHUP (the
// terminal was closed) is the same request.
//
//   signal --> request --(7 tenths of the limit)--> hooks, if any, and the end --(the limit)--> the end
//
// Installed only if SIGTERM would have its default effect; a handler that the script sets later replaces ours. SIGHUP
// is left alone if it is ignored (nohup) or handled. A service manager signals a launcher and its processes at once,
// and the launcher passes its own signal on. So a second signal soon after the first is the same request. A later one,
// and one to a forked child, act at once. Threads: the handler interrupts any thread; two more wait, asleep, for their
// time. Ownership: the process's disposition of the two signals, once.
#pragma once

#include <chrono>
#include <functional>

namespace collab {

inline constexpr std::chrono::milliseconds kSameRequest{5000};

// The signal ends the process after `limit`, whatever the process does meanwhile. Further signals within `same_request`
// are ignored. False: SIGTERM is handled or ignored already. Calls after the first only change the times.
bool watch_for_termination(std::chrono::milliseconds limit, std::chrono::milliseconds same_request = kSameRequest);
// SIGTERM or SIGHUP has come.
[[nodiscard]] bool termination_requested();
// The signal that has come, else SIGTERM.
[[nodiscard]] const char* termination_signal();
// Ends the process as that signal does by default.
[[noreturn]] void carry_out_termination();

// For a process that serves its parent, such as a DataLoader's worker: stopping a service signals the worker too, but
// the last steps need it. From here on the two signals act only if the parent sends them, or is gone.
void end_by_parent_only();

// A call that runs before the process ends, on a thread of its own, if the process has not ended by then. The process
// ends once all such calls have run. The call must not throw.
class TerminationHook {
 public:
  explicit TerminationHook(std::function<void()> call);
  // Does not return while the call runs: the process ends after it.
  ~TerminationHook();
  TerminationHook(const TerminationHook&) = delete;
  TerminationHook& operator=(const TerminationHook&) = delete;
};

}  // namespace collab
