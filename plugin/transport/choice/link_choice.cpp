#include "transport/choice/link_choice.h"

namespace collab {
namespace {

const char* key_given(const Config& config) {
  if (!config.token.empty()) return "COLLAB_TOKEN";
  if (!config.token_file.empty()) return "COLLAB_TOKEN_FILE";
  if (!config.tls_cert.empty()) return "COLLAB_TLS_CERT";
  if (!config.tls_key.empty()) return "COLLAB_TLS_KEY";  // encrypts nothing by itself; tcp reports what is missing
  return config.tls_ca.empty() ? nullptr : "COLLAB_TLS_CA";
}

// The choice of ucx or gloo, which users must name.
Result<LinkChoice> in_the_clear(const Config& config, const char* key) {
  const std::string asked = "COLLAB_TRANSPORT=" + config.transport;
  if (key == nullptr) return LinkChoice{config.transport, asked + ", not encrypted"};
  if (!config.insecure) {
    return refused(std::string(key) + " is given, and " + asked +
                   " does not encrypt, so it would not be used: leave COLLAB_TRANSPORT unset (tcp encrypts), leave " +
                   key + " out, or set COLLAB_INSECURE=1 to send the model in the clear anyway [link.key-unused]");
  }
  return LinkChoice{config.transport,
                    asked + " and COLLAB_INSECURE=1, not encrypted: " + key + " is given and not used", true};
}

}  // namespace

Result<LinkChoice> choose_links(const Config& config, const std::function<Status()>& ucx_loads) {
  const std::string& wanted = config.transport;
  const char* const key = key_given(config);
  if (wanted == "gloo") return in_the_clear(config, key);
  if (wanted == "ucx") {
    if (const Status loads = ucx_loads(); !loads.ok()) {
      return refused("COLLAB_TRANSPORT=ucx, and " + loads.message() +
                     "; then look at `collab doctor`. COLLAB_TRANSPORT=tcp at all sites and the coordinator does "
                     "without [link.ucx-missing]");
    }
    return in_the_clear(config, key);
  }
  return LinkChoice{
      "tcp", "COLLAB_TRANSPORT=" + wanted +
                 (key != nullptr ? std::string(", encrypted by ") + key : ", not encrypted, as no token is given")};
}

std::string to_string(const LinkChoice& choice) {
  return "links between sites use " + choice.kind + ": " + choice.reason;
}

Status ucx_not_built() {
  return unavailable(
      "this build of collab has no ucx transport, as it found no headers of UCX; `pip install "
      "\"torch-collab[ucx]\"` or your system's libucx-dev brings them, and collab must be built again "
      "[link.ucx-not-built]");
}

}  // namespace collab
