// The ports that are listened on, and the connections that have not said who they are, or that leave. They are limited,
// so that no stranger can keep others out.
//
// Threads: listen() from any thread, all else on the IO thread. Ownership: acceptors, and connections without a link.
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
  static constexpr Duration kGreetLimit = std::chrono::seconds(10);  // until a connection has said who it is

  explicit PendingConnections(EngineParts& all) : all_(all) {}

  Result<std::string> listen(const std::string& address);
  [[nodiscard]] bool allowed(const Endpoint& peer) const;  // without encryption, only near addresses
  [[nodiscard]] bool empty() const { return connections_.empty(); }
  [[nodiscard]] ConnectionPtr find(const Connection& connection) const;  // null: it is not one of these

  // The connection said who it is, and now belongs to a link.
  void admit(const Connection& connection);
  void remember_host(const boost::asio::ip::address& host);  // of a link: evicted last
  void refuse_connection(Connection& connection, Refusal why, const std::string& reason);
  // Its link has ended: what it was given is still sent.
  void adopt_draining(const ConnectionPtr& connection);
  // Room for one more link. For a link that is dialled here, only links that are being closed go. And room for one more
  // data connection: of links that others have dialled, or of this one that was dialled here.
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
  std::set<boost::asio::ip::address> hosts_;  // hosts that have had a link here
  std::deque<boost::asio::ip::address> hosts_in_order_;
  RateLimit not_accepted_{std::chrono::seconds(10)};
  RateLimit refusal_log_limit_{std::chrono::seconds(1)};
  RateLimit dropped_{std::chrono::minutes(1)};  // strangers knock at a public port all day
};

}  // namespace collab::tcp
