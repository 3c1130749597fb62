// What the programs here have in common: the COLLAB_* variables, the transport these ask for, the command line, and the
// signals that end them.
//
// Threads: the caller's. Ownership: the caller's.
#pragma once

#include <boost/program_options.hpp>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collab/config.h"
#include "collab/status.h"
#include "collab/transport.h"
#include "transport/choice/link_choice.h"

namespace collab::tools {

// The knobs from the environment and the command line, which wins. Sets the log, and warns there of COLLAB_ variables
// that are no knobs.
[[nodiscard]] Result<LoadedConfig> read_knobs(const std::vector<std::pair<std::string, std::string>>& given,
                                              std::string_view prefix);
[[nodiscard]] Result<LinkChoice> choose_links(const LoadedConfig& loaded);
[[nodiscard]] Result<std::unique_ptr<Transport>> make_transport(const LoadedConfig& loaded, const LinkChoice& choice);

// Blocks SIGINT and SIGTERM before any thread starts, so that only a thread that waits for this set sees them.
[[nodiscard]] sigset_t block_ends();
[[nodiscard]] const char* name_of_end(int signal);

// The log's last line, whatever its level; what main() returns.
int fail(const Status& status);
// Reads the command line for `serve`, or answers --help, or says what is wrong with it; what main() returns.
int run(const std::string& program, const boost::program_options::options_description& options, int argc, char** argv,
        int (*serve)(const boost::program_options::variables_map& arguments));

}  // namespace collab::tools
