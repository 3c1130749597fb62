#include "transport/auto/link_choice.h"

namespace collab {
namespace {

const char* key_given(const Config& config) {
  if (!config.token.empty()) return "COLLAB_TOKEN";
  if (!config.token_file.empty()) return "COLLAB_TOKEN_FILE";
  if (!config.tls_cert.empty()) return "COLLAB_TLS_CERT";
  if (!config.tls_key.empty()) return "COLLAB_TLS_KEY";  // alone it is no key; tcp says what is missing
  return config.tls_ca.empty() ? nullptr : "COLLAB_TLS_CA";
}

// ucx or gloo, asked for by name.
Result<LinkChoice> in_the_clear(const Config& config, const char* key) {
  const std::string asked = "COLLAB_TRANSPORT=" + config.transport;
  if (key == nullptr) return LinkChoice{config.transport, asked + ", not encrypted"};
  if (!config.insecure) {
    return refused(std::string(key) + " is given, and " + asked +
                   " does not encrypt, so that the key would not be used: leave COLLAB_TRANSPORT unset (tcp encrypts), "
                   "leave the key out, or set COLLAB_INSECURE=1 to send the model in the clear all the same");
  }
  return LinkChoice{config.transport,
                    asked + " and COLLAB_INSECURE=1, not encrypted: " + key + " is given and not used", true};
}

}  // namespace

Result<LinkChoice> choose_links(const Config& config, const std::function<Status()>& ucx_loads) {
  const std::string& wanted = config.transport;
  const char* const key = key_given(config);
  if (wanted == "loopback") {
    return refused("COLLAB_TRANSPORT=loopback joins sites inside one process, for tests; use auto, ucx, tcp or gloo");
  }
  if (wanted == "gloo") return in_the_clear(config, key);
  if (wanted == "tcp") {
    return LinkChoice{"tcp", key != nullptr ? std::string("COLLAB_TRANSPORT=tcp, encrypted by ") + key
                                            : "COLLAB_TRANSPORT=tcp, not encrypted, for no key is given"};
  }
  if (wanted == "auto" && key != nullptr) {
    return LinkChoice{"tcp", std::string(key) + " is given, and of the transports only tcp encrypts"};
  }
  const Status loads = ucx_loads();
  if (wanted == "ucx") {
    if (loads.ok()) return in_the_clear(config, key);
    return refused(
        "COLLAB_TRANSPORT=ucx, and " + loads.message() +
        "; then look at `collab doctor`. COLLAB_TRANSPORT=tcp at all sites and the coordinator does without");
  }
  if (!loads.ok()) {
    return LinkChoice{"tcp", "not encrypted, for no key is given; without ucx, for " + loads.message()};
  }
  return LinkChoice{"auto",
                    "ucx where both sides have it and it gets through, else tcp; not encrypted, for no key is given"};
}

std::string to_string(const LinkChoice& choice) {
  const std::string kind = choice.kind == "auto" ? "ucx or tcp" : choice.kind;
  return "links between sites use " + kind + ": " + choice.reason;
}

Status ucx_not_built() {
  return unavailable(
      "this build of collab has no ucx transport, as it found no headers of UCX; `pip install "
      "\"torch-collab[ucx]\"` or your system's libucx-dev brings them, and collab must be built again");
}

}  // namespace collab
