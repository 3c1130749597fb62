#include "transport/ucx/ucx_resolver.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <set>
#include <span>
#include <thread>
#include <utility>

namespace collab {
namespace {

constexpr const char* kUnknownHost = " [ucx.unknown-host]";

}  // namespace

Result<SocketAddresses> resolve_numeric(const HostPort& address) {
  return look_up_host(address, AI_NUMERICHOST, kUnknownHost);
}

Result<SocketAddresses> resolve_name(const HostPort& address, bool to_listen) {
  return look_up_host(address, to_listen ? AI_PASSIVE : 0, kUnknownHost);
}

void resolve_in_background(HostPort address, std::function<void(Result<SocketAddresses>)> done) {
  std::thread([address = std::move(address), done = std::move(done)] { done(resolve_name(address, false)); }).detach();
}

bool is_near(const sockaddr_storage& address) {
  const auto near = [](const auto& bytes) {
    return is_near(std::span(reinterpret_cast<const std::uint8_t*>(&bytes), sizeof bytes));
  };
  if (address.ss_family == AF_INET) return near(reinterpret_cast<const sockaddr_in*>(&address)->sin_addr);
  return address.ss_family == AF_INET6 && near(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr);
}

bool is_any(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return address.ss_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr);
}

std::string interfaces_with(const SocketAddresses& addresses) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  std::set<std::string> names;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const auto family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage own{};
    std::memcpy(&own, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    for (const SocketAddress& address : addresses) {
      if (host_port_of(own).host == host_port_of(address.storage).host) names.insert(entry->ifa_name);
    }
  }
  freeifaddrs(first);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

HostPort host_port_of(const sockaddr_storage& address) {
  std::array<char, NI_MAXHOST> host{};
  const bool six = address.ss_family == AF_INET6;
  const socklen_t length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return {"unknown", 0};
  }
  // The port is at the same offset in IPv4 and IPv6 addresses.
  return {host.data(), ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port)};
}

}  // namespace collab
