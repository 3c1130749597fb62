#include "tools/page/server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
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
constexpr std::chrono::milliseconds kPause{100};  // after a failed accept, for example without free file descriptors

// A host with one IPv6 address usually owns the whole /64.
std::string network_of(const asio::ip::address& address) {
  if (address.is_v4() || address.to_v6().is_v4_mapped()) return address.to_string();
  return asio::ip::network_v6(address.to_v6(), 64).canonical().to_string();
}

std::string text_of(const Answer& answer, bool with_body) {
  const auto reason = http::obsolete_reason(http::int_to_status(answer.status));
  std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " " + std::string(reason) +
                     "\r\nContent-Type: " + answer.type + "\r\n";
  for (const auto& [name, value] : answer.headers) text += name + ": " + value + "\r\n";
  text += "Connection: close\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n";
  return with_body ? text + answer.body : text;
}

}  // namespace

struct Server::Loop {
  explicit Loop(const Clock& of) : clock(of) {}

  struct Connection {
    Connection(tcp::socket socket, asio::ssl::context* context) : stream(std::move(socket)) {
      if (context != nullptr) tls.emplace(stream, *context);
      stream.expires_after(Server::kTime);
      parser.header_limit(Server::kMaxHead);
      error_code gone;
      const tcp::endpoint from = stream.socket().remote_endpoint(gone);
      if (!gone) network = network_of(from.address());
    }

    std::string network;
    beast::tcp_stream stream;
    std::optional<asio::ssl::stream<beast::tcp_stream&>> tls;  // none: in the clear
    beast::flat_static_buffer<Server::kMaxHead> buffer;
    http::request_parser<http::empty_body> parser;
    std::string response;
  };

  static Request request_of(const Connection& connection) {
    const http::request<http::empty_body>& message = connection.parser.get();
    const auto text = [&](http::field field) { return std::string(message[field]); };
    return {std::string(message.method_string()), std::string(message.target()), text(http::field::host),
            text(http::field::authorization), connection.network};
  }

  void accept() {
    acceptor.async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        pause.expires_after(kPause);
        return pause.async_wait([this](error_code cancelled) {
          if (!cancelled) accept();
        });
      }
      auto* const context = certificate ? &*certificate : nullptr;
      const auto connection = std::make_shared<Connection>(std::move(socket), context);
      // A handshake costs this side more than the client, which need not even read the answer.
      if (context == nullptr || handshakes.allow(clock.now(), connection->network, true)) {
        if (connections.size() == kMaxConnections) turn_one_out();
        begin(connections.emplace_back(connection));
      }
      accept();
    });
  }

  void turn_one_out() {
    std::map<std::string, std::size_t> of_network;
    for (const auto& connection : connections) ++of_network[connection->network];
    const auto rank = [&](const auto& connection) { return of_network.at(connection->network); };
    const auto oldest = std::ranges::max_element(connections, {}, rank);  // the first one with the highest rank
    (*oldest)->stream.close();  // its handlers run with an error, and find it gone
    connections.erase(oldest);
  }

  // Calls `use` with the connection's stream, TLS or plain.
  template <class Use>
  static void over(Connection& connection, const Use& use) {
    connection.tls ? use(*connection.tls) : use(connection.stream);
  }

  void begin(const std::shared_ptr<Connection>& connection) {
    if (!connection->tls) return read(connection);
    connection->tls->async_handshake(asio::ssl::stream_base::server, [this, connection](error_code error) {
      error ? finish(connection) : read(connection);
    });
  }

  // Calls the parser directly: http::async_read_header and async_write would take 20 s more to compile.
  void read(const std::shared_ptr<Connection>& connection) {
    auto& buffer = connection->buffer;
    const auto room = buffer.prepare(buffer.max_size() - buffer.size());
    if (room.size() == 0) return finish(connection);
    over(*connection, [&](auto& stream) {
      stream.async_read_some(room, [this, connection](error_code error, std::size_t size) {
        if (error) return finish(connection);
        connection->buffer.commit(size);
        connection->buffer.consume(connection->parser.put(connection->buffer.data(), error));
        if (error == http::error::need_more) return read(connection);
        error ? finish(connection) : write(connection);
      });
    });
  }

  void write(const std::shared_ptr<Connection>& connection) {
    const Request request = request_of(*connection);
    connection->response = text_of(answers(request), request.method != "HEAD");
    over(*connection, [&](auto& stream) {
      asio::async_write(stream, asio::buffer(connection->response), [this, connection](error_code error, std::size_t) {
        error ? finish(connection) : end(connection);
      });
    });
  }

  // Sends the end of the TLS stream, and does not wait for the other side's.
  void end(const std::shared_ptr<Connection>& connection) {
    if (!connection->tls) return finish(connection);
    connection->tls->async_shutdown([this, connection](error_code) { finish(connection); });
  }

  void finish(const std::shared_ptr<Connection>& connection) {
    error_code ignored;
    connection->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    connections.remove(connection);
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
  std::optional<asio::ssl::context> certificate;  // none: in the clear
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io}, timer{io};
  std::list<std::shared_ptr<Connection>> connections;  // the oldest first
  const Clock& clock;
  Shares handshakes;
  std::function<Answer(const Request&)> answers;
  std::function<void()> every;
  std::thread thread;
};

Server::Server(const Clock& clock) : loop_(std::make_unique<Loop>(clock)) {}

Server::~Server() {
  loop_->io.stop();
  if (loop_->thread.joinable()) loop_->thread.join();
}

Status Server::use_tls(const std::string& certificate_file, const std::string& key_file) {
  asio::ssl::context& context = loop_->certificate.emplace(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context.native_handle(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.native_handle(), SSL_MODE_RELEASE_BUFFERS);
  const auto wrong = [](const char* option, const char* expected, const std::string& file, const error_code& error) {
    return invalid_argument(std::string(option) + ": expected " + expected + " in PEM, got " +
                            (file.empty() ? "nothing" : file) + " (" + error.message() +
                            "); --http-cert and --http-key go together [page.certificate]");
  };
  error_code error;
  context.set_password_callback([](std::size_t, asio::ssl::context::password_purpose) { return std::string(); }, error);
  if (context.use_certificate_chain_file(certificate_file, error); error) {
    return wrong("--http-cert", "a certificate for this machine's name", certificate_file, error);
  }
  if (context.use_private_key_file(key_file, asio::ssl::context::pem, error); error) {
    return wrong("--http-key", "the private key of --http-cert, not encrypted,", key_file, error);
  }
  return {};
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
