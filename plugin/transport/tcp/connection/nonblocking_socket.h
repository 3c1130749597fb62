// A TCP socket that never blocks: it reads and writes as much as the system allows now, and calls back when more is
// possible.
//
// Threads: one at a time, that of the event loop. Ownership: owns the socket. Callbacks must keep this object alive.
#pragma once

#include <sys/uio.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "collab/clock.h"
#include "transport/tcp/connection/tcp_socket.h"

namespace collab::tcp {

// Arguments of prepare_socket().
struct SocketOptions {
  std::string congestion;
  Duration give_up;  // TCP_USER_TIMEOUT
};

class NonblockingSocket {
 public:
  using Error = boost::system::error_code;

  explicit NonblockingSocket(boost::asio::io_context& io) : socket_(io) {}
  ~NonblockingSocket() { close(); }
  NonblockingSocket(const NonblockingSocket&) = delete;
  NonblockingSocket& operator=(const NonblockingSocket&) = delete;

  // Opens the socket for a dial; connect() follows.
  [[nodiscard]] Error open(const Endpoint& to, const SocketOptions& options);
  template <typename Done>
  void connect(Done done) {
    socket_.async_connect(peer_, std::move(done));
  }
  void connected();
  void adopt(boost::asio::ip::tcp::socket socket, const Endpoint& from, const SocketOptions& options);

  [[nodiscard]] const Endpoint& peer() const { return peer_; }
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  [[nodiscard]] int handle() { return socket_.native_handle(); }
  [[nodiscard]] std::optional<Duration> kernel_silence() const;

  struct IoResult {
    std::size_t bytes = 0;     // 0: none now
    std::optional<int> error;  // the connection has ended, with this errno; 0: the other side closed it
  };
  IoResult receive(std::span<std::byte> first, std::span<std::byte> second);
  IoResult send(std::span<iovec> parts);

  // Calls `then` once when the socket is ready. Until then, further calls do nothing. Closing the socket drops `then`.
  template <typename Then>
  void wait_to_read(Then then) {
    if (!std::exchange(waits_to_read_, true))
      wait(boost::asio::ip::tcp::socket::wait_read, waits_to_read_, std::move(then));
  }
  template <typename Then>
  void wait_to_write(Then then) {
    if (!std::exchange(waits_to_write_, true))
      wait(boost::asio::ip::tcp::socket::wait_write, waits_to_write_, std::move(then));
  }
  [[nodiscard]] bool waits_to_write() const { return waits_to_write_; }

  void shut();  // ends sending
  void close() { close_own(socket_); }

 private:
  template <typename Then>
  void wait(boost::asio::ip::tcp::socket::wait_type what, bool& waits, Then then) {
    socket_.async_wait(what, [&waits, then = std::move(then)](const Error& error) {
      waits = false;
      if (!error) then();
    });
  }

  boost::asio::ip::tcp::socket socket_;
  Endpoint peer_;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  bool shut_ = false;
};

}  // namespace collab::tcp
