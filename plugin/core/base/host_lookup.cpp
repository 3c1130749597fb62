#include "core/base/host_lookup.h"

#include <netdb.h>

#include <cstring>
#include <string>

namespace collab {

Result<SocketAddresses> look_up_host(const HostPort& address, int flags, const char* code) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return unavailable("the host \"" + address.host + "\" is not known: " + gai_strerror(error) + code);
  SocketAddresses addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress one;
    one.length = entry->ai_addrlen;
    std::memcpy(&one.storage, entry->ai_addr, entry->ai_addrlen);
    addresses.push_back(one);
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace collab
