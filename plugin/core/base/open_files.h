// How many files this process may have open, sockets among them.
//
// Threads: any.
#pragma once

#include <cstddef>

namespace collab {

[[nodiscard]] std::size_t most_open_files();  // now

// Up to as many as the system lets it ask for, and no more than serve any swarm: each link of a peer is one.
void allow_more_open_files();

}  // namespace collab
