#include "transport/tcp/tcp_transport.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/log.h"
#include "transport/tcp/tcp_engine.h"
#include "transport/tcp/tcp_token.h"

namespace collab {
namespace {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::unique_ptr<tcp::TcpEngine> engine) : engine_(std::move(engine)) {}
  ~TcpTransport() override {
    // The child of a fork has neither the thread nor the right to the parent's connections.
    if (engine_->in_child()) [[maybe_unused]]
      auto* left_alone = engine_.release();
  }

  [[nodiscard]] std::string name() const override { return "tcp"; }
  [[nodiscard]] Abilities abilities() const override {
    return {.resumes = true,
            .crosses_nat = true,
            .encrypts = engine_->encrypts(),
            .between_hosts = true,
            .sees_peer_death = true};
  }
  Status start(TransportHandler* handler) override { return engine_->start(handler); }
  Result<std::string> listen(const std::string& address) override { return engine_->listen(address); }
  LinkId connect(const std::string& address, Duration timeout) override { return engine_->connect(address, timeout); }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    engine_->send(link, std::move(message), token);
  }
  void close(LinkId link) override { engine_->close(link); }
  [[nodiscard]] TcpCounters counters() const { return engine_->counters(); }

 private:
  std::unique_ptr<tcp::TcpEngine> engine_;
};

constexpr std::size_t kLongestToken = 4096;

// Once a process and file.
void warn_if_exposed(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & 077) == 0) return;
  static std::mutex mutex;
  static auto* const warned = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (!warned->insert(file).second) return;
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
  log_warning("COLLAB_TOKEN_FILE: others on this machine can read " + file + " or change it (mode " + mode.data() +
              "), and with it join the swarm: chmod 600 " + file);
}

Result<std::string> read_token(const TcpOptions& options) {
  std::string text = options.token;
  if (!options.token_file.empty()) {
    if (!text.empty()) return invalid_argument("COLLAB_TOKEN and COLLAB_TOKEN_FILE are both set; set one of them");
    std::ifstream file(options.token_file, std::ios::binary);
    if (!file) {
      return invalid_argument("COLLAB_TOKEN_FILE: " + options.token_file + " cannot be read: " + std::strerror(errno));
    }
    text.resize(kLongestToken + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (file.bad()) {
      return invalid_argument("COLLAB_TOKEN_FILE: " + options.token_file + " cannot be read: " + std::strerror(errno));
    }
    warn_if_exposed(options.token_file);
    if (text.size() > kLongestToken) {
      return invalid_argument("COLLAB_TOKEN_FILE: " + options.token_file + " is too long for a token");
    }
  }
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(std::find_if_not(text.rbegin(), text.rend(), space).base(), text.end());
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
  if (options.token_file.empty()) return text;
  const std::string what = "COLLAB_TOKEN_FILE: " + options.token_file;
  if (text.empty()) return invalid_argument(what + " is empty; make a token with `collab token`");
  if (std::ranges::any_of(text, space)) {
    return invalid_argument(what + " holds more than one word; expected one token, as `collab token` makes it");
  }
  if (text.size() < tcp::kShortestToken) {
    return invalid_argument(what + " holds " + std::to_string(text.size()) +
                            " characters; expected a token as `collab token` makes it: anything below " +
                            std::to_string(tcp::kShortestToken) + " could be guessed");
  }
  return text;
}

// Null: in the clear.
Result<std::shared_ptr<const tcp::TlsContext>> make_tls(const TcpOptions& options) {
  Result<std::string> token = read_token(options);
  if (!token.ok()) return token.status();
  const bool files = !options.tls_cert.empty() || !options.tls_key.empty() || !options.tls_ca.empty();
  if (files && !token->empty()) {
    return invalid_argument("COLLAB_TOKEN and COLLAB_TLS_CERT are both set; use the token or certificates");
  }
  if (!files && token->empty()) return std::shared_ptr<const tcp::TlsContext>();
  return tcp::TlsContext::make({std::move(*token), options.tls_cert, options.tls_key, options.tls_ca});
}

}  // namespace

TcpOptions tcp_options(const LoadedConfig& loaded) {
  const Config& config = loaded.config;
  TcpOptions options;
  options.connections = config.connections;
  options.congestion = config.congestion;
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
                            " connections a link, got " + std::to_string(options.connections));
  }
  if (options.heartbeat < std::chrono::milliseconds(1) || options.link_grace <= Duration(0) ||
      options.max_mbit_up < 0 || options.max_mbit_down < 0) {
    return invalid_argument("tcp: heartbeat and grace are times above zero, caps are not negative");
  }
  Result<std::shared_ptr<const tcp::TlsContext>> tls = make_tls(options);
  if (!tls.ok()) return tls.status();
  options.token.clear();  // its key is all that is needed
  auto engine = std::make_unique<tcp::TcpEngine>(std::move(options), std::move(*tls));
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(std::move(engine)));
}

Result<std::vector<unsigned char>> swarm_secret(const TcpOptions& options, std::string_view purpose) {
  const Result<std::string> token = read_token(options);
  if (!token.ok()) return token.status();
  if (token->empty()) return std::vector<unsigned char>();
  return tcp::key_of_token(*token, purpose, 32);
}

Result<bool> has_made_token(const TcpOptions& options) {
  const Result<std::string> token = read_token(options);
  if (!token.ok()) return token.status();
  return tcp::is_made_token(*token);
}

TcpCounters tcp_counters(const Transport& transport) {
  const auto* const made_here = dynamic_cast<const TcpTransport*>(&transport);
  return made_here != nullptr ? made_here->counters() : TcpCounters();
}

}  // namespace collab
