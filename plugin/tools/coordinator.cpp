// collab-coordinator: the coordinator as a separate process, on a machine that needs no torch.
//
// It takes the same COLLAB_* variables as a training process, and runs until SIGINT or SIGTERM. With --http it serves a
// page for a browser.
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
#include "core/base/open_files.h"
#include "core/runtime/addresses.h"
#include "tools/environment.h"
#include "tools/page/page.h"

namespace {

namespace po = boost::program_options;

constexpr const char* kProgram = "collab-coordinator";

using collab::tools::fail;

// Null: without --http.
collab::Result<std::unique_ptr<collab::Page>> serve_page(const po::variables_map& arguments,
                                                         const collab::LoadedConfig& config,
                                                         std::shared_ptr<const collab::CoordinatorServer> server,
                                                         const std::string& coordinator) {
  const auto text = [&](const char* name) {
    return arguments.count(name) > 0 ? arguments[name].as<std::string>() : std::string();
  };
  if (arguments.count("http") == 0) return std::unique_ptr<collab::Page>();
  return collab::serve_page({.http = text("http"),
                             .insecure = arguments["http-insecure"].as<bool>(),
                             .certificate = text("http-cert"),
                             .key = text("http-key"),
                             .objective = text("objective"),
                             .leaderboard = text("leaderboard"),
                             .join = {}},
                            config, std::move(server), coordinator);
}

int serve(const po::variables_map& arguments) {
  std::vector<std::pair<std::string, std::string>> given;
  if (arguments.count("sites") > 0) given.emplace_back("min_sites", arguments["sites"].as<std::string>());
  if (arguments.count("run") > 0) given.emplace_back("run", arguments["run"].as<std::string>());
  const auto listen = arguments["listen"].as<std::string>();
  given.emplace_back("listen", listen);
  const collab::Result<collab::LoadedConfig> loaded = collab::tools::read_knobs(given, "coordinator");
  if (!loaded.ok()) return fail(loaded.status());

  collab::allow_more_open_files();
  const sigset_t ends = collab::tools::block_ends();

  const collab::Result<collab::LinkChoice> choice = collab::tools::choose_links(*loaded);
  if (!choice.ok()) return fail(choice.status());
  collab::Result<std::unique_ptr<collab::Transport>> transport = collab::tools::make_transport(*loaded, *choice);
  if (!transport.ok()) return fail(transport.status());
  collab::Result<std::unique_ptr<collab::CoordinatorServer>> served =
      collab::serve_coordinator(loaded->config, std::move(*transport), listen);
  if (!served.ok()) return fail(served.status());
  const std::shared_ptr<collab::CoordinatorServer> server = std::move(*served);
  const std::string address = server->address();
  const bool anywhere = (loaded->config.advertise.empty() || loaded->config.advertise == collab::kNotDialable) &&
                        collab::is_wildcard(listen);
  const std::string dialled = anywhere ? "HOST" + address.substr(address.rfind(':')) : address;
  const collab::Result<std::unique_ptr<collab::Page>> page = serve_page(arguments, *loaded, server, dialled);
  if (!page.ok()) return fail(page.status());
  std::cout << "collab-coordinator: sites reach it at COLLAB_COORDINATOR=" << dialled
            << (anywhere ? ", HOST being any address of this machine" : "") << "\n"
            << kProgram << ": " << to_string(*choice) << std::endl;
  if (*page) std::cout << kProgram << ": " << (*page)->announcement() << std::endl;
  int signal = 0;
  sigwait(&ends, &signal);
  std::cout << "collab-coordinator: stopped by " << collab::tools::name_of_end(signal) << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  po::options_description options("collab-coordinator: decides which sites take part in rounds; touches no tensors");
  options.add_options()("help,h", "print this and exit")("listen", po::value<std::string>()->required(),
                                                         "HOST:PORT to listen on; port 0 takes a free one")(
      "sites", po::value<std::string>(), "round 0 waits for this many sites (COLLAB_MIN_SITES)")(
      "run", po::value<std::string>(), "the swarm's name (COLLAB_RUN)")(
      "http", po::value<std::string>(),
      "HOST:PORT of a read-only page for a browser, 127.0.0.1:8080 say; port 0 takes a free one")(
      "http-cert", po::value<std::string>(),
      "serve the page over HTTPS with this certificate (PEM, its chain after it)")(
      "http-key", po::value<std::string>(), "the private key of --http-cert (PEM)")(
      "http-insecure", po::bool_switch(), "let other machines reach the page, in the clear")(
      "objective", po::value<std::string>(), "the purpose of the run, in your words, for the page")(
      "leaderboard", po::value<std::string>(), "a file that keeps how much each site has contributed, across restarts");
  return collab::tools::run(kProgram, options, argc, argv, &serve);
}
