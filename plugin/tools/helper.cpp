// collab-helper: a process that owns slices for sites that cannot, on a machine that needs no torch.
//
// It takes the same COLLAB_* variables as a training process, and runs until SIGINT or SIGTERM.
#include <unistd.h>

#include <array>
#include <boost/program_options.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "collab/config.h"
#include "collab/session.h"
#include "tools/environment.h"

namespace {

namespace po = boost::program_options;

constexpr collab::Duration kLook = std::chrono::milliseconds(200);

constexpr const char* kProgram = "collab-helper";

using collab::tools::fail;

// Like `collab helper`: each helper of a swarm needs its own site name.
std::string default_site() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) return "helper";
  return ("helper-" + std::string(host.data())).substr(0, 64);
}

int serve(const po::variables_map& arguments) {
  std::vector<std::pair<std::string, std::string>> given;
  for (const char* name : {"coordinator", "listen", "run", "site"}) {
    if (arguments.count(name) > 0) given.emplace_back(name, arguments[name].as<std::string>());
  }
  const collab::Result<collab::LoadedConfig> loaded = collab::tools::read_knobs(given, "helper");
  if (!loaded.ok()) return fail(loaded.status());

  const sigset_t ends = collab::tools::block_ends();

  const collab::Result<collab::LinkChoice> choice = collab::tools::choose_links(*loaded);
  if (!choice.ok()) return fail(choice.status());
  const collab::Config& config = loaded->config;
  const collab::Result<std::unique_ptr<collab::HelperServer>> helper =
      collab::serve_helper({.config = config,
                            .site = config.site.empty() ? default_site() : config.site,
                            .coordinators = config.coordinator,
                            .make_transport = [loaded = *loaded, choice = *choice] {
                              return collab::tools::make_transport(loaded, choice);
                            }});
  if (!helper.ok()) return fail(helper.status());
  std::cout << "collab-helper: at work for run " << config.run << "\n"
            << kProgram << ": " << to_string(*choice) << std::endl;
  const timespec now{};
  int signal = -1;
  while (signal < 0) {
    const collab::Status status = (*helper)->wait(kLook);
    if (status.code() != collab::StatusCode::kTimeout) return fail(status);
    signal = sigtimedwait(&ends, nullptr, &now);
  }
  (*helper)->leave();
  std::cout << "collab-helper: stopped by " << collab::tools::name_of_end(signal) << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  po::options_description options("collab-helper: reduces slices for sites that cannot be dialled or have thin lines");
  options.add_options()("help,h", "print this and exit")("coordinator", po::value<std::string>(),
                                                         "HOST:PORT of the coordinator (COLLAB_COORDINATOR)")(
      "listen", po::value<std::string>(), "HOST:PORT where sites reach it (COLLAB_LISTEN)")(
      "site", po::value<std::string>(), "its name in the swarm (COLLAB_SITE); default: helper-HOST")(
      "run", po::value<std::string>(), "the swarm's name (COLLAB_RUN)");
  return collab::tools::run(kProgram, options, argc, argv, &serve);
}
