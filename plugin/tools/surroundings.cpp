#include "tools/surroundings.h"

#include "transport/tcp/tcp_transport.h"
#ifdef COLLAB_HAS_UCX
#include "transport/ucx/ucx_transport.h"
#endif

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace collab::tools {

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

Result<std::unique_ptr<Transport>> make_transport(const LoadedConfig& loaded) {
  const std::string& wanted = loaded.config.transport;
  if (wanted == "gloo" || wanted == "loopback") {
    return invalid_argument("COLLAB_TRANSPORT=" + wanted +
                            " does not join processes of their own; expected auto, ucx or tcp");
  }
#ifdef COLLAB_HAS_UCX
  const Config& config = loaded.config;
  const bool keyed = !config.token.empty() || !config.token_file.empty() || !config.tls_cert.empty();
  if (wanted == "ucx" || (wanted == "auto" && !keyed)) {
    UcxOptions options;
    if (loaded.config.connections != 0) options.connections = loaded.config.connections;
    return make_ucx_transport(std::move(options));
  }
#else
  if (wanted == "ucx") {
    return unavailable("this build has no UCX; build it with -DCOLLAB_WITH_UCX=ON or set COLLAB_TRANSPORT=tcp");
  }
#endif
  return make_tcp_transport(tcp_options(loaded));
}

}  // namespace collab::tools
