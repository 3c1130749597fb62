// collab-coordinator: the coordinator as a process of its own, on a machine that needs no torch.
//
// It takes the same COLLAB_* variables as a training process, and runs until SIGINT or SIGTERM.
#include <boost/program_options.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "collab/config.h"
#include "collab/session.h"
#include "core/base/log.h"
#include "transport/tcp/tcp_transport.h"
#ifdef COLLAB_HAS_UCX
#include "transport/ucx/ucx_transport.h"
#endif

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace {

namespace po = boost::program_options;

[[nodiscard]] std::vector<std::pair<std::string, std::string>> collab_environment() {
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

int fail(const collab::Status& status) {
  std::cerr << "collab-coordinator: " << status.message() << "\n";
  return EXIT_FAILURE;
}

// `auto` is ucx, as at the sites, unless this build has none.
collab::Result<std::unique_ptr<collab::Transport>> make_transport(const collab::LoadedConfig& loaded) {
  const std::string& wanted = loaded.config.transport;
  if (wanted == "gloo" || wanted == "loopback") {
    return collab::invalid_argument("COLLAB_TRANSPORT=" + wanted +
                                    " does not join processes of their own; expected auto, ucx or tcp");
  }
#ifdef COLLAB_HAS_UCX
  if (wanted != "tcp") {
    collab::UcxOptions options;
    if (loaded.config.connections != 0) options.connections = loaded.config.connections;
    return collab::make_ucx_transport(std::move(options));
  }
#else
  if (wanted == "ucx") {
    return collab::unavailable("this build has no UCX; build it with -DCOLLAB_WITH_UCX=ON or set COLLAB_TRANSPORT=tcp");
  }
#endif
  return collab::make_tcp_transport(collab::tcp_options(loaded));
}

int serve(const po::variables_map& arguments) {
  std::vector<std::pair<std::string, std::string>> given;
  if (arguments.count("sites") > 0) given.emplace_back("site_count", arguments["sites"].as<std::string>());
  if (arguments.count("run") > 0) given.emplace_back("run", arguments["run"].as<std::string>());
  const collab::Result<collab::LoadedConfig> loaded = collab::load_config(collab_environment(), given);
  if (!loaded.ok()) return fail(loaded.status());
  const collab::Result<collab::LogLevel> level = collab::log_level_from_name(loaded->config.log);
  if (!level.ok()) return fail(level.status());
  collab::set_log(*level, "coordinator");

  // Blocked before any thread starts, so that only sigwait() below sees them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  collab::Result<std::unique_ptr<collab::Transport>> transport = make_transport(*loaded);
  if (!transport.ok()) return fail(transport.status());
  const collab::Result<std::unique_ptr<collab::CoordinatorServer>> server =
      collab::serve_coordinator(loaded->config, std::move(*transport), arguments["listen"].as<std::string>());
  if (!server.ok()) return fail(server.status());
  std::cout << "collab-coordinator: sites reach it at COLLAB_COORDINATOR=" << (*server)->address() << std::endl;
  int signal = 0;
  sigwait(&ends, &signal);
  std::cout << "collab-coordinator: stopped by " << (signal == SIGINT ? "SIGINT" : "SIGTERM") << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  po::options_description options("collab-coordinator: decides who takes part in a round; never touches tensors");
  options.add_options()("help,h", "print this and exit")("listen", po::value<std::string>()->required(),
                                                         "HOST:PORT to listen on; port 0 takes a free one")(
      "sites", po::value<std::string>(), "round 0 waits for this many sites (COLLAB_SITE_COUNT)")(
      "run", po::value<std::string>(), "the swarm's name (COLLAB_RUN)");
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
    std::cerr << "collab-coordinator: " << error.what() << "\n" << options;
    return 2;
  }
}
