// Looks up the addresses of a host in the system's resolver.
//
// Threads: any; may block. Ownership: plain values.
#pragma once

#include <sys/socket.h>

#include <vector>

#include "collab/status.h"
#include "core/base/address.h"

namespace collab {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
using SocketAddresses = std::vector<SocketAddress>;

// Addresses for stream sockets. `flags` are getaddrinfo()'s; with AI_NUMERICHOST it does not block. `code` ends an
// error's text.
[[nodiscard]] Result<SocketAddresses> look_up_host(const HostPort& address, int flags, const char* code = "");

}  // namespace collab
