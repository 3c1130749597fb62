// What the tests of the tcp transport share: its options, a world for the conformance suite, a linked pair.
//
// Threads: as conformance.h says. Ownership: a pair owns its peers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/transport/conformance.h"
#include "tests/transport/plain_socket.h"
#include "transport/tcp/tcp_transport.h"

namespace collab::testing {

inline const std::string kToken = "a-token-for-tests-0123456789abcdefghijklmnop";
inline const std::string kOtherToken = "another-token-for-tests-0123456789abcdefghij";

inline TcpOptions by_token(std::string token = kToken) {
  TcpOptions options;
  options.token = std::move(token);
  return options;
}
inline TcpOptions by_certificates(const std::string& name = "site") {
  const std::string folder = COLLAB_CERTIFICATES;
  TcpOptions options;
  options.tls_cert = folder + "/" + name + ".pem";
  options.tls_key = folder + "/" + name + ".key";
  options.tls_ca = folder + "/authority.pem";
  return options;
}

inline std::unique_ptr<Transport> make_tcp(const TcpOptions& options) {
  auto made = make_tcp_transport(options);
  COLLAB_CHECK(made.ok(), made.status().to_string());
  return std::move(*made);
}

inline bool until(const std::function<bool()>& holds, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!holds() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

class TcpWorld final : public World {
 public:
  explicit TcpWorld(TcpOptions options) : options_(std::move(options)) { nobody_ = unused_.bind_free_port(false); }
  std::unique_ptr<Transport> make(const std::string&) override { return make_tcp(options_); }
  [[nodiscard]] std::string any_port(const std::string&) const override { return "127.0.0.1:0"; }
  [[nodiscard]] std::string nobody() const override { return nobody_; }
  std::optional<std::string> silent() override { return silent_.bind_free_port(true); }

 private:
  const TcpOptions options_;
  PlainSocket unused_;  // bound, not listening
  PlainSocket silent_;  // listening, accepting nobody
  std::string nobody_;
};

// b has dialled a.
struct TcpPair {
  Peer a, b;
  LinkId from, to;  // b's end and a's
  std::shared_ptr<BufferPool> pool = make_buffer_pool();

  explicit TcpPair(const TcpOptions& options = {}) {
    begin(a, options);
    begin(b, options);
    a.address = *a.transport->listen("127.0.0.1:0");
  }
  static void begin(Peer& peer, const TcpOptions& options) {
    peer.transport = make_tcp(options);
    EXPECT_TRUE(peer.transport->start(&peer.seen).ok());
  }
  // By way of `address`, where given.
  void link(const std::string& address = {}) {
    from = b.transport->connect(address.empty() ? a.address : address, std::chrono::seconds(10));
    EXPECT_TRUE(until([&] { return b.seen.connected(from) && !a.seen.accepted().empty(); }));
    if (const auto why = b.seen.closed(from)) ADD_FAILURE() << "no link: " << why->to_string();
    if (!a.seen.accepted().empty()) to = a.seen.accepted().back();
  }
  void send(Lane lane, std::uint64_t number, std::size_t payload_bytes, std::uint64_t token = 0) {
    b.transport->send(from, make_message(*pool, lane, number, 16, payload_bytes), token);
  }
  void check_it_works() {
    const auto before = a.seen.messages();
    send(Lane::kData, 1, 1 << 20);
    EXPECT_TRUE(until([&] { return a.seen.messages() == before + 1; }));
  }
};

}  // namespace collab::testing
