// What makes the transport faster than plain TCP, one row for each mechanism. A benchmark can switch each one off and
// measure its worth. Only tests/bench defines COLLAB_MECHANISMS. Everywhere else a hook is a constant, and nothing of
// it is compiled. tests/bench/bench_mechanisms.py has the names.
//
// Hooks are in sources and never in headers: objects that are compiled with and without them are linked into one
// program.
//
// Threads: any. Mechanisms are switched off before there are threads. Ownership: none.
#pragma once

#include <cstdint>

namespace collab::tcp {

enum class Mechanism : std::uint8_t {
  kRotation,        // connections under BBR work in shifts (link/rotation.cpp)
  kPatience,        // a link that is ahead of the others bears a shorter queue (engine/balance.cpp)
  kShares,          // a link begins an exchange with its part of the last one (engine/balance.cpp)
  kSecondCopies,    // what hangs on one connection goes over another as well (engine/striping.cpp)
  kSearch,          // for the number of connections (engine/number_search.cpp)
  kUnverifiedLook,  // of that search, while no queue is seen (pace/connection_search.cpp)
  kPace,            // at the line's rate, with a short queue (link/link_pacing.cpp)
  kWayOut,          // the queue is seen by pings on the control connection as well (engine/pacing.cpp)
  kDrain,           // the queue is emptied now and then (pace/link_pace.cpp)
  kSmallSegments,   // on slow connections, and where they are many (engine/striping.cpp)
  kBatches,         // a slow connection is given little at once (engine/striping.cpp)
  kLittleUnsent,    // a socket holds little beyond what is on its way (link/link_pacing.cpp)
  kCount,
};

#ifdef COLLAB_MECHANISMS
[[nodiscard]] bool off(Mechanism which);
#else
[[nodiscard]] consteval bool off(Mechanism /*which*/) { return false; }
#endif

}  // namespace collab::tcp
