// How many files this process may have open, sockets among them.
//
// Threads: any.
#pragma once

#include <cstddef>

namespace collab {

[[nodiscard]] std::size_t most_open_files();  // the current limit

// Raises the limit as far as the system allows, but not above the need of any swarm: each link to a peer takes one.
void allow_more_open_files();

}  // namespace collab
