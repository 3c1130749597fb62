#include "tools/environment.h"

#include <cstdlib>
#include <iostream>

#include "core/base/log.h"
#include "transport/tcp/tcp_transport.h"
#ifdef COLLAB_HAS_UCX
#include "transport/ucx/ucx_transport.h"
#endif

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace collab::tools {

namespace {

std::vector<std::pair<std::string, std::string>> collab_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("COLLAB_") && equals != std::string::npos) {
      found.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return found;
}

}  // namespace

Result<LoadedConfig> read_knobs(const std::vector<std::pair<std::string, std::string>>& given,
                                std::string_view prefix) {
  set_log_source(prefix, std::nullopt);
  const auto environment = collab_environment();
  Result<LoadedConfig> loaded = load_config(environment, given);
  if (!loaded.ok()) return loaded;
  const Result<LogLevel> level = log_level_from_name(loaded->config.log_level);
  if (!level.ok()) return level.status();
  set_log_level(*level);
  for (const std::string& warning : environment_warnings(environment)) log_warning(warning);
  return loaded;
}

Result<LinkChoice> choose_links(const LoadedConfig& loaded) {
  if (loaded.config.transport == "gloo") {
    return refused("COLLAB_TRANSPORT=" + loaded.config.transport +
                   " cannot join separately started processes; expected auto, tcp or ucx [link.no-processes]");
  }
  return collab::choose_links(loaded.config, [] {
#ifdef COLLAB_HAS_UCX
    return ucx_description("").status();
#else
    return ucx_not_built();
#endif
  });
}

Result<std::unique_ptr<Transport>> make_transport(const LoadedConfig& loaded,
                                                  [[maybe_unused]] const LinkChoice& choice) {
#ifdef COLLAB_HAS_UCX
  if (choice.kind == "ucx") return make_ucx_transport(ucx_options(loaded));
#endif
  return make_tcp_transport(tcp_options(loaded));
}

sigset_t block_ends() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

const char* name_of_end(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

int fail(const Status& status) {
  log_last_words(status.message());
  return EXIT_FAILURE;
}

int run(const std::string& program, const boost::program_options::options_description& options, int argc, char** argv,
        int (*serve)(const boost::program_options::variables_map& arguments)) {
  namespace po = boost::program_options;
  try {
    po::variables_map arguments;
    po::store(po::parse_command_line(argc, argv, options), arguments);
    if (arguments.count("help") > 0) {
      std::cout << options;
      return EXIT_SUCCESS;
    }
    po::notify(arguments);
    return serve(arguments);
  } catch (const po::error& error) {
    std::cerr << program << ": " << error.what() << "\n" << options;
    return 2;
  }
}

}  // namespace collab::tools
