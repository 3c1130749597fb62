#include "transport/tcp/connection/nonblocking_socket.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace collab::tcp {
namespace {

namespace asio = boost::asio;

void prepare(asio::ip::tcp::socket& socket, const Endpoint& peer, const SocketOptions& options) {
  make_own(socket.native_handle());
  prepare_socket(socket.native_handle(), peer.address().is_loopback() ? std::string() : options.congestion,
                 options.give_up);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

NonblockingSocket::Error NonblockingSocket::open(const Endpoint& to, const SocketOptions& options) {
  peer_ = to;
  Error error;
  socket_.open(to.protocol(), error);
  if (!error) prepare(socket_, to, options);
  return error;
}

void NonblockingSocket::connected() {
  Error ignored;
  socket_.native_non_blocking(true, ignored);
}

void NonblockingSocket::adopt(asio::ip::tcp::socket socket, const Endpoint& from, const SocketOptions& options) {
  socket_ = std::move(socket);
  peer_ = from;
  connected();
  prepare(socket_, from, options);
}

std::optional<Duration> NonblockingSocket::kernel_silence() const {
  auto& socket = const_cast<asio::ip::tcp::socket&>(socket_);
  return socket.is_open() ? tcp::kernel_silence(socket.native_handle()) : std::nullopt;
}

NonblockingSocket::IoResult NonblockingSocket::receive(std::span<std::byte> first, std::span<std::byte> second) {
  std::array<iovec, 2> parts{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
  const int from = first.empty() ? 1 : 0;
  const ssize_t got = ::readv(handle(), parts.data() + from, 2 - from);
  if (got > 0) return {static_cast<std::size_t>(got), {}};
  if (got == 0) return {0, 0};
  return would_block(errno) ? IoResult() : IoResult{0, errno};
}

NonblockingSocket::IoResult NonblockingSocket::send(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t put = ::sendmsg(handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put >= 0) return {static_cast<std::size_t>(put), {}};
  return would_block(errno) || errno == ENOBUFS ? IoResult() : IoResult{0, errno};
}

void NonblockingSocket::shut() {
  if (std::exchange(shut_, true)) return;
  Error ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

}  // namespace collab::tcp
