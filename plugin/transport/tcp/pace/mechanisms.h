// The mechanisms that make the transport faster than plain TCP, one per row. A benchmark can switch each one off and
// measure its gain. Only tests/bench defines COLLAB_MECHANISMS. Everywhere else each hook is a constant that compiles
// to nothing. tests/bench/bench_mechanisms.py has the names.
//
// Hooks are in sources, never in headers: one program links objects compiled with and without them.
//
// Threads: any. Mechanisms are switched off before other threads start. Ownership: none.
#pragma once

#include <cstdint>

namespace collab::tcp {

enum class Mechanism : std::uint8_t {
  kRotation,        // connections work in shifts under BBR (link/rotation.cpp)
  kPatience,        // a link that is ahead aims at a shorter queue (engine/balance.cpp)
  kShares,          // a link starts an exchange at its share of the last one (engine/balance.cpp)
  kSecondCopies,    // data that hangs on one connection also goes over another (engine/striping.cpp)
  kSearch,          // search for the number of connections (engine/number_search.cpp)
  kUnverifiedLook,  // that search, repeated while no queue is seen (pace/connection_search.cpp)
  kPace,            // sending at the line's rate, with a short queue (link/link_pacing.cpp)
  kWayOut,          // pings on the control connection also measure the queue (engine/pacing.cpp)
  kDrain,           // emptying the queue periodically (pace/link_pace.cpp)
  kSmallSegments,   // on slow connections, and on many (engine/striping.cpp)
  kBatches,         // a slow connection is given little at once (engine/striping.cpp)
  kLittleUnsent,    // a socket holds few bytes beyond those in flight (link/link_pacing.cpp)
  kCount,
};

#ifdef COLLAB_MECHANISMS
[[nodiscard]] bool off(Mechanism which);
#else
[[nodiscard]] consteval bool off(Mechanism /*which*/) { return false; }
#endif

}  // namespace collab::tcp
