#include "transport/ucx/ucx_transport.h"

#include <utility>

#include "core/base/engine_transport.h"
#include "transport/ucx/engine/ucx_engine.h"
#include "transport/ucx/ucx_api.h"

namespace collab {
UcxOptions ucx_options(const LoadedConfig& loaded) {
  UcxOptions options;
  if (loaded.config.connections != 0) options.connections = loaded.config.connections;
  options.insecure = loaded.config.insecure;
  options.listen = loaded.config.listen;
  return options;
}

Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options) {
  if (options.connections < 1 || options.connections > kMaxConnections) {
    return invalid_argument("ucx: expected 1 to " + std::to_string(kMaxConnections) + " connections a link, got " +
                            std::to_string(options.connections) + " [ucx.connections]");
  }
  auto engine = UcxEngine::make(options);
  if (!engine.ok()) return engine.status();
  constexpr Abilities kAbilities{.between_hosts = true, .sees_peer_death = true};
  return std::unique_ptr<Transport>(
      std::make_unique<EngineTransport<UcxEngine>>("ucx", kAbilities, std::move(*engine)));
}

Result<UcxDescription> ucx_description(const std::string& library_dir) {
  auto api = load_ucx(library_dir);
  if (!api.ok()) return api.status();
  return UcxDescription{(*api)->version, (*api)->path};
}

}  // namespace collab
