// A TCP socket that holds nobody up: it says what the system takes and gives now, and tells when there may be more.
//
// Threads: one at a time, that of the event loop. Ownership: owns the socket; what is called back keeps this alive.
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

// What the system is asked for, see prepare_socket().
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

  // To be dialled, then connected.
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
    std::optional<int> error;  // the connection has ended: by errno, or 0 where the other side closed it
  };
  IoResult receive(std::span<std::byte> first, std::span<std::byte> second);
  IoResult send(std::span<iovec> parts);

  // Once; again after `then` was called, which it is not when the socket was closed meanwhile.
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

  void shut();  // nothing more is sent
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
