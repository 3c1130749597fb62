// What the programs here take from where they run: the COLLAB_* variables, and the transport these ask for.
//
// Threads: the caller's. Ownership: the caller's.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collab/config.h"
#include "collab/status.h"
#include "collab/transport.h"

namespace collab::tools {

[[nodiscard]] std::vector<std::pair<std::string, std::string>> collab_environment();
// `auto` is as at the sites: tcp where a key is given or this build has no UCX, else ucx.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_transport(const LoadedConfig& loaded);

}  // namespace collab::tools
