// What crossed the network: a table for people, JSON for programs.
//
// Threads: pure functions; the network must not be running.
#pragma once

#include <string>

#include "tools/lab/network.h"

namespace collab::lab {

// One line per host, each starting with "lab: ".
[[nodiscard]] std::string traffic_table(const Network& network, const NetworkSpec& spec, Time elapsed);

// {"seconds", "seed", "sites": [{"name", "address", ...}], "paths": [{"from", "to", "sent_bytes", ...}]}
[[nodiscard]] std::string traffic_json(const Network& network, const NetworkSpec& spec, Time elapsed);

}  // namespace collab::lab
