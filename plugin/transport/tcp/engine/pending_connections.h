// The listening ports, and the connections without a link: those that have not sent a hello yet, and those that drain.
// Their number is limited, and no stranger can keep others out.
//
// Threads: listen() from any thread, all else on the IO thread. Ownership: owns the acceptors and the connections
// without a link.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/rate_limit.h"
#include "transport/tcp/connection/tcp_connection.h"

namespace collab::tcp {

struct EngineParts;
class TcpLink;

class PendingConnections {
 public:
  static constexpr Duration kGreetLimit = std::chrono::seconds(10);  // for a connection's hello

  explicit PendingConnections(EngineParts& all) : all_(all) {}

  Result<std::string> listen(const std::string& address);
  [[nodiscard]] bool allowed(const Endpoint& peer) const;  // without encryption, only near addresses
  [[nodiscard]] bool empty() const { return connections_.empty(); }
  [[nodiscard]] ConnectionPtr find(const Connection& connection) const;  // null: not pending

  // The connection has sent its hello, and now belongs to a link.
  void admit(const Connection& connection);
  void remember_host(const boost::asio::ip::address& host);  // a host that had a link: its connections are evicted last
  void refuse_connection(Connection& connection, Refusal why, const std::string& reason);
  // The connection's link has ended. What the connection has queued is still sent.
  void adopt_draining(const ConnectionPtr& connection);
  // Makes room for one more link, by ending another. For a link dialled here, it ends only a link that is being closed.
  // The next two tell whether there is room for one more data connection: of an accepted link, or of this link, which
  // was dialled here.
  void make_room_for_link(bool dialled);
  [[nodiscard]] bool has_room_for_data() const;
  [[nodiscard]] bool has_room_to_dial_data(const TcpLink& link) const;

  void failed(const ConnectionPtr& from, Fault fault, const Status& why);
  void tick(TimePoint now);
  void stop();

 private:
  using Acceptor = std::shared_ptr<boost::asio::ip::tcp::acceptor>;
  using Among = std::function<bool(const ConnectionPtr&)>;

  void accept_on(const Acceptor& acceptor);
  void accepted(boost::asio::ip::tcp::socket socket, const Endpoint& from);
  void make_room();
  void evict(const Among& among);
  void log_refusal(const Endpoint& from, const std::string& reason);
  void drop_closed();

  EngineParts& all_;
  std::vector<Acceptor> acceptors_;
  std::deque<ConnectionPtr> connections_;     // the oldest first
  std::set<boost::asio::ip::address> hosts_;  // hosts that had a link here
  std::deque<boost::asio::ip::address> hosts_in_order_;
  RateLimit not_accepted_{std::chrono::seconds(10)};
  RateLimit refusal_log_limit_{std::chrono::seconds(1)};
  RateLimit dropped_{std::chrono::minutes(1)};  // strangers knock at a public port all day
};

}  // namespace collab::tcp
