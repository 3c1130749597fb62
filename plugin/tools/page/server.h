// An HTTP server for short texts, in the clear or in TLS. It is limited: one request a connection, one thread for all.
//
// A connection has kTime for its handshake, its request and for taking the answer. If there are more than
// kMaxConnections, the oldest of the network with most is closed: a network that opens many and says nothing keeps no
// other out. A network that makes more TLS handshakes than a viewer's share of requests is closed without one. A
// request's head has at most kMaxHead bytes; what follows it is not read. Threads: start() and the destructor belong to
// the owner. `answer` and `every` are called on the server's own thread. Ownership: borrows the clock.
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

  // Before start(): TLS 1.2 or 1.3, with this certificate (its chain after it) and its key, PEM files. kInvalidArgument
  // names the file that is wrong.
  Status use_tls(const std::string& certificate_file, const std::string& key_file);
  // The address as bound. kInvalidArgument: it cannot be listened at, and why.
  Result<HostPort> listen(const HostPort& address);
  [[nodiscard]] bool is_loopback() const;
  // `every` is called each five seconds, and once at the end.
  void start(std::function<Answer(const Request&)> answer, std::function<void()> every);

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace collab::page
