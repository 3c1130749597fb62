// Common parts of these programs: the COLLAB_* variables, the transport that they select, the command line, and the
// signals that end a program.
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

// Reads the knobs from the environment and the command line, which takes precedence. Configures the log, and warns
// there about COLLAB_ variables that are no knobs.
[[nodiscard]] Result<LoadedConfig> read_knobs(const std::vector<std::pair<std::string, std::string>>& given,
                                              std::string_view prefix);
[[nodiscard]] Result<LinkChoice> choose_links(const LoadedConfig& loaded);
[[nodiscard]] Result<std::unique_ptr<Transport>> make_transport(const LoadedConfig& loaded, const LinkChoice& choice);

// Blocks SIGINT and SIGTERM. Call it before any thread starts, so that only a thread that waits for this set gets them.
[[nodiscard]] sigset_t block_ends();
[[nodiscard]] const char* name_of_end(int signal);

// Logs the error as the last line, whatever the log level. Returns the exit status for main().
int fail(const Status& status);
// Reads the command line and calls `serve`, or answers --help, or reports an error. Returns the exit status for main().
int run(const std::string& program, const boost::program_options::options_description& options, int argc, char** argv,
        int (*serve)(const boost::program_options::variables_map& arguments));

}  // namespace collab::tools
