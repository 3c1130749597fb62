// Hello and welcome: how a connection joins a link, and how it leaves it.
//
// Threads: the IO thread. Ownership: none; connections and links belong to others.
#pragma once

#include <string>

#include "core/base/rate_limit.h"
#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Greeter {
 public:
  explicit Greeter(EngineParts& all) : all_(all) {}

  Status on_hello(Connection& from, const Hello& hello);
  Status on_welcome(Connection& from, const Id& process);
  void on_refuse(Connection& from, const Refuse& refusal);
  // Removes a connection from its link. Its unacknowledged data goes over other connections, or waits for a redial.
  void detach(TcpLink& link, Connection& connection);

 private:
  TcpLink& open_link(Connection& from, const Hello& hello);
  void attach(TcpLink& link, const ConnectionPtr& connection);
  void log_reconnect(const TcpLink& link, const LinkConnections::Absence& absence);
  void log_authenticated(const TcpLink& link, const Connection& by) const;
  void warn_congestion(const std::string& name);

  EngineParts& all_;
  bool warned_congestion_ = false;
  RateLimit returned_{16, 0.1};  // a cut line ends many links at once, and a peer may cut its own repeatedly
};

}  // namespace collab::tcp
