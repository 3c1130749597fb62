// A small HTTP server for short texts, in the clear or in TLS: one request per connection, one thread for all.
//
// A connection has kTime for its handshake, its request and reading the answer. If there are more than kMaxConnections,
// the server closes the oldest connection of the network with the most: a network with many silent connections keeps no
// other out. If a network makes more TLS handshakes than a viewer's share of requests, the server closes its
// connections without one. A request's head has at most kMaxHead bytes; the server does not read the body. Threads: the
// owner calls start() and the destructor. The server's own thread calls `answer` and `every`. Ownership: borrows the
// clock.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collab/clock.h"
#include "collab/status.h"
#include "core/base/address.h"
#include "tools/page/answers.h"

namespace collab::page {

class Server {
 public:
  static constexpr std::size_t kMaxConnections = 64;
  static constexpr std::uint32_t kMaxHead = 8192;
  static constexpr std::chrono::seconds kTime{5};

  explicit Server(const Clock& clock);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Call before start(). Uses TLS 1.2 or 1.3, with this certificate (followed by its chain) and its key, PEM files.
  // kInvalidArgument names the file that is wrong.
  Status use_tls(const std::string& certificate_file, const std::string& key_file);
  // Returns the bound address. kInvalidArgument: listening failed, and why.
  Result<HostPort> listen(const HostPort& address);
  [[nodiscard]] bool is_loopback() const;
  // `every` is called every five seconds, and once at the end.
  void start(std::function<Answer(const Request&)> answer, std::function<void()> every);

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace collab::page
