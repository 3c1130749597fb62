#include "transport/ucx/ucx_resolver.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

namespace collab {
namespace {

Result<SocketAddresses> look_up(const HostPort& address, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (error != 0) return unavailable("the host \"" + address.host + "\" is not known: " + gai_strerror(error));
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

std::pair<std::string, std::string> numbers_of(const sockaddr_storage& address) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const socklen_t length = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(), port.data(),
                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {"unknown address", "0"};
  }
  return {host.data(), port.data()};
}

}  // namespace

Result<HostPort> split_host_port(const std::string& address) {
  const auto colon = address.rfind(':');
  HostPort parts;
  if (colon != std::string::npos) {
    parts = {address.substr(0, colon), address.substr(colon + 1)};
    if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']') {
      parts.host = parts.host.substr(1, parts.host.size() - 2);
    }
  }
  const bool number = !parts.port.empty() && parts.port.size() <= 5 &&
                      std::all_of(parts.port.begin(), parts.port.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                      std::stoul(parts.port) <= 65535;
  if (parts.host.empty() || !number) {
    return invalid_argument("\"" + address + "\" is not an address: expected host:port with a port from 0 to 65535");
  }
  return parts;
}

Result<SocketAddresses> resolve_numeric(const HostPort& address) { return look_up(address, AI_NUMERICHOST); }

Result<SocketAddresses> resolve_name(const HostPort& address, bool to_listen) {
  return look_up(address, to_listen ? AI_PASSIVE : 0);
}

void resolve_in_background(HostPort address, std::function<void(Result<SocketAddresses>)> done) {
  std::thread([address = std::move(address), done = std::move(done)] { done(resolve_name(address, false)); }).detach();
}

std::string to_text(const sockaddr_storage& address) {
  const auto [host, port] = numbers_of(address);
  return (address.ss_family == AF_INET6 ? "[" + host + "]" : host) + ":" + port;
}

std::string port_of(const sockaddr_storage& address) { return numbers_of(address).second; }

}  // namespace collab
