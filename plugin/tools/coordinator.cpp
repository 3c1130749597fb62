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
#include "core/runtime/addresses.h"
#include "tools/environment.h"

namespace {

namespace po = boost::program_options;

constexpr const char* kProgram = "collab-coordinator";

int fail(const collab::Status& status) { return collab::tools::fail(kProgram, status); }

int serve(const po::variables_map& arguments) {
  std::vector<std::pair<std::string, std::string>> given;
  if (arguments.count("sites") > 0) given.emplace_back("min_sites", arguments["sites"].as<std::string>());
  if (arguments.count("run") > 0) given.emplace_back("run", arguments["run"].as<std::string>());
  const auto listen = arguments["listen"].as<std::string>();
  given.emplace_back("listen", listen);
  const collab::Result<collab::LoadedConfig> loaded = collab::tools::read_knobs(given, "coordinator");
  if (!loaded.ok()) return fail(loaded.status());

  const sigset_t ends = collab::tools::block_ends();

  const collab::Result<collab::LinkChoice> choice = collab::tools::choose_links(*loaded);
  if (!choice.ok()) return fail(choice.status());
  collab::Result<std::unique_ptr<collab::Transport>> transport = collab::tools::make_transport(*loaded, *choice);
  if (!transport.ok()) return fail(transport.status());
  const collab::Result<std::unique_ptr<collab::CoordinatorServer>> server =
      collab::serve_coordinator(loaded->config, std::move(*transport), listen);
  if (!server.ok()) return fail(server.status());
  const std::string address = (*server)->address();
  const bool anywhere = (loaded->config.advertise.empty() || loaded->config.advertise == collab::kNotDialable) &&
                        collab::is_wildcard(listen);
  std::cout << "collab-coordinator: sites reach it at COLLAB_COORDINATOR="
            << (anywhere ? "HOST" + address.substr(address.rfind(':')) + ", HOST being any address of this machine"
                         : address)
            << "\n"
            << kProgram << ": " << to_string(*choice) << std::endl;
  int signal = 0;
  sigwait(&ends, &signal);
  std::cout << "collab-coordinator: stopped by " << collab::tools::name_of_end(signal) << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  po::options_description options("collab-coordinator: decides who takes part in a round; never touches tensors");
  options.add_options()("help,h", "print this and exit")("listen", po::value<std::string>()->required(),
                                                         "HOST:PORT to listen on; port 0 takes a free one")(
      "sites", po::value<std::string>(), "round 0 waits for this many sites (COLLAB_MIN_SITES)")(
      "run", po::value<std::string>(), "the swarm's name (COLLAB_RUN)");
  return collab::tools::run(kProgram, options, argc, argv, &serve);
}
