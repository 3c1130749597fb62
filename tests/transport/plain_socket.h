// A TCP socket of the system's own, for peers that do not speak our protocols.
//
// Threads and ownership: one owner; closes its file.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace collab::testing {

class PlainSocket {
 public:
  explicit PlainSocket(in_addr_t host = INADDR_LOOPBACK, std::uint16_t port = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(host);
    address_.sin_port = htons(port);
  }
  ~PlainSocket() { ::close(fd_); }
  PlainSocket(const PlainSocket&) = delete;
  PlainSocket& operator=(const PlainSocket&) = delete;

  // A free one where none was given.
  std::string bind_free_port(bool listens) {
    socklen_t length = sizeof(address_);
    EXPECT_EQ(bind(fd_, generic(), sizeof(address_)), 0);
    EXPECT_EQ(getsockname(fd_, generic(), &length), 0);
    if (listens) {
      EXPECT_EQ(::listen(fd_, 64), 0);
    }
    return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port));
  }
  // Before it connects: from another address of this machine.
  void come_from(in_addr_t host) {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(host);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
  }
  bool connect_to(const std::string& address) {
    address_.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    return ::connect(fd_, generic(), sizeof(address_)) == 0;
  }
  void write(std::string_view bytes) { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // What comes until the other side ends or the time is up.
  std::string read_all(int limit_ms) {
    std::string all;
    std::array<char, 4096> part{};
    pollfd ready{fd_, POLLIN, 0};
    while (::poll(&ready, 1, limit_ms) > 0) {
      const ssize_t got = ::recv(fd_, part.data(), part.size(), 0);
      if (got <= 0) break;
      all.append(part.data(), static_cast<std::size_t>(got));
    }
    return all;
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address_); }
  const int fd_;
  sockaddr_in address_{};
};

}  // namespace collab::testing
