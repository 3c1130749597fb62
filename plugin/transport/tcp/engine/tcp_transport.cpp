#include "transport/tcp/tcp_transport.h"

#include <utility>

#include "core/base/engine_transport.h"
#include "transport/tcp/engine/tcp_engine.h"
#include "transport/tcp/tls/tcp_keys.h"
#include "transport/tcp/tls/tcp_token.h"

namespace collab {
using TcpTransport = EngineTransport<tcp::TcpEngine>;

TcpOptions tcp_options(const LoadedConfig& loaded) {
  const Config& config = loaded.config;
  TcpOptions options;
  options.connections = config.connections;
  options.congestion = config.tcp_congestion;
  options.token = config.token;
  options.token_file = config.token_file;
  options.tls_cert = config.tls_cert;
  options.tls_key = config.tls_key;
  options.tls_ca = config.tls_ca;
  options.insecure = config.insecure;
  options.link_grace = config.link_grace;
  options.heartbeat = config.heartbeat;
  options.max_mbit_up = config.max_mbit_up;
  options.max_mbit_down = config.max_mbit_down;
  return options;
}

Result<std::unique_ptr<Transport>> make_tcp_transport(TcpOptions options) {
  if (options.connections > tcp::kMaxDataConnections) {
    return invalid_argument("tcp: expected at most " + std::to_string(tcp::kMaxDataConnections) +
                            " connections a link, got " + std::to_string(options.connections) + " [tcp.connections]");
  }
  if (options.heartbeat < std::chrono::milliseconds(1) || options.link_grace <= Duration(0) ||
      options.max_mbit_up < 0 || options.max_mbit_down < 0) {
    return invalid_argument("tcp: heartbeat and grace must be above zero, and caps must not be negative [tcp.times]");
  }
  Result<std::shared_ptr<tcp::TlsKeys>> keys = tcp::TlsKeys::make(options);
  if (!keys.ok()) return keys.status();
  options.token.clear();  // only its key is needed
  auto engine = std::make_unique<tcp::TcpEngine>(std::move(options), std::move(*keys));
  const Abilities abilities{.resumes = true,
                            .crosses_nat = true,
                            .encrypts = engine->encrypts(),
                            .between_hosts = true,
                            .sees_peer_death = true};
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>("tcp", abilities, std::move(engine)));
}

Result<SwarmSecrets> swarm_secrets(const TcpOptions& options, std::string_view purpose) {
  const Result<tcp::Tokens> tokens = tcp::read_tokens(options);
  if (!tokens.ok()) return tokens.status();
  SwarmSecrets secrets;
  for (const std::string* token : {&tokens->spoken, &tokens->older}) {
    if (token->empty()) continue;
    Result<std::vector<unsigned char>> secret = tcp::key_of_token(*token, purpose, 32);
    if (!secret.ok()) return secret.status();
    secrets.push_back(std::move(*secret));
  }
  return secrets;
}

Result<bool> has_made_token(const TcpOptions& options) {
  const Result<tcp::Tokens> tokens = tcp::read_tokens(options);
  if (!tokens.ok()) return tokens.status();
  return tcp::is_made_token(tokens->spoken) && (tokens->older.empty() || tcp::is_made_token(tokens->older));
}

TcpCounters tcp_counters(const Transport& transport) {
  const auto* const made_here = dynamic_cast<const TcpTransport*>(&transport);
  return made_here != nullptr ? made_here->engine().counters() : TcpCounters();
}

}  // namespace collab
