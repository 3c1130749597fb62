#include "tools/page/server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

namespace collab::page {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr std::chrono::seconds kEvery{5};
constexpr std::chrono::milliseconds kPause{100};  // where the system accepts no connection, for want of files say

// Who has one address of IPv6 has, as a rule, all with the same first half.
std::string network_of(const asio::ip::address& address) {
  if (address.is_v4() || address.to_v6().is_v4_mapped()) return address.to_string();
  return asio::ip::network_v6(address.to_v6(), 64).canonical().to_string();
}

struct Connection {
  explicit Connection(tcp::socket socket) : stream(std::move(socket)) {
    parser.header_limit(Server::kMaxHead);
    error_code gone;
    const tcp::endpoint from = stream.socket().remote_endpoint(gone);
    if (!gone) network = network_of(from.address());
  }

  std::string network;
  beast::tcp_stream stream;
  beast::flat_static_buffer<Server::kMaxHead> buffer;
  http::request_parser<http::empty_body> parser;
  http::response<http::string_body> response;
  std::optional<http::response_serializer<http::string_body>> writes;
};

Request request_of(const Connection& connection) {
  const http::request<http::empty_body>& message = connection.parser.get();
  const auto text = [&](http::field field) { return std::string(message[field]); };
  return {std::string(message.method_string()), std::string(message.target()), text(http::field::host),
          text(http::field::authorization), connection.network};
}

}  // namespace

struct Server::Loop {
  void accept() {
    acceptor.async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        pause.expires_after(kPause);
        return pause.async_wait([this](error_code cancelled) {
          if (!cancelled) accept();
        });
      }
      if (connections.size() == kMaxConnections) turn_one_out();
      read(connections.emplace_back(std::make_shared<Connection>(std::move(socket))));
      accept();
    });
  }

  void turn_one_out() {
    std::map<std::string, std::size_t> of_network;
    for (const auto& connection : connections) ++of_network[connection->network];
    const auto rank = [&](const auto& connection) { return of_network.at(connection->network); };
    const auto oldest = std::ranges::max_element(connections, {}, rank);  // the first of those with most
    (*oldest)->stream.close();  // its handlers are called with an error, and find it gone
    connections.erase(oldest);
  }

  void finish(const std::shared_ptr<Connection>& connection) {
    error_code ignored;
    connection->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    connections.remove(connection);
  }

  void read(const std::shared_ptr<Connection>& connection) {
    connection->stream.expires_after(kTime);
    http::async_read_header(connection->stream, connection->buffer, connection->parser,
                            [this, connection](error_code error, std::size_t) {
                              if (error) return finish(connection);
                              write(connection);
                            });
  }

  void write(const std::shared_ptr<Connection>& connection) {
    const Request request = request_of(*connection);
    Answer answer = answers(request);
    auto& response = connection->response;
    response.version(11);
    response.result(answer.status);
    response.set(http::field::content_type, answer.type);
    for (const auto& [name, value] : answer.headers) response.set(name, value);
    response.keep_alive(false);
    response.body() = std::move(answer.body);
    response.prepare_payload();
    auto& writes = connection->writes.emplace(response);
    const auto done = [this, connection](error_code, std::size_t) { finish(connection); };
    if (request.method == "HEAD") return http::async_write_header(connection->stream, writes, done);
    http::async_write(connection->stream, writes, done);
  }

  void wait() {
    timer.expires_after(kEvery);
    timer.async_wait([this](error_code cancelled) {
      if (cancelled) return;
      every();
      wait();
    });
  }

  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io}, timer{io};
  std::list<std::shared_ptr<Connection>> connections;  // the oldest first
  std::function<Answer(const Request&)> answers;
  std::function<void()> every;
  std::thread thread;
};

Server::Server() : loop_(std::make_unique<Loop>()) {}

Server::~Server() {
  loop_->io.stop();
  if (loop_->thread.joinable()) loop_->thread.join();
}

Result<HostPort> Server::listen(const HostPort& address) {
  const auto failed = [&](const error_code& error) {
    const std::string where = to_string(address);
    if (error == asio::error::address_in_use) {
      return invalid_argument("--http " + where + ": another process listens at port " + std::to_string(address.port) +
                              ": name another port; 0 takes a free one [page.port-in-use]");
    }
    return invalid_argument("--http " + where + ": cannot listen there: " + error.message() + " [page.cannot-listen]");
  };
  error_code error;
  const auto found =
      tcp::resolver(loop_->io).resolve(address.host, std::to_string(address.port), tcp::resolver::passive, error);
  if (error || found.empty()) return failed(error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = loop_->acceptor;
  if (acceptor.open(endpoint.protocol(), error); error) return failed(error);
  if (acceptor.set_option(tcp::acceptor::reuse_address(true), error); error) return failed(error);
  if (acceptor.bind(endpoint, error); error) return failed(error);
  if (acceptor.listen(tcp::acceptor::max_listen_connections, error); error) return failed(error);
  const tcp::endpoint bound = acceptor.local_endpoint();
  return HostPort{bound.address().to_string(), bound.port()};
}

bool Server::is_loopback() const {
  error_code error;
  return loop_->acceptor.local_endpoint(error).address().is_loopback();
}

void Server::start(std::function<Answer(const Request&)> answer, std::function<void()> every) {
  loop_->answers = std::move(answer);
  loop_->every = std::move(every);
  loop_->accept();
  loop_->wait();
  loop_->thread = std::thread([loop = loop_.get()] {
    loop->io.run();
    loop->every();
  });
}

}  // namespace collab::page
