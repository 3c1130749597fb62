#include "transport/tcp/connection/tcp_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/host_lookup.h"

namespace collab::tcp {
namespace {

namespace ip = boost::asio::ip;

template <typename T>
bool set(int fd, int level, int name, const T& value) {
  return ::setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

}  // namespace

void make_own(int fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  set_close_on_fork(fd);
}

std::string to_text(const Endpoint& endpoint) {
  const ip::address address = endpoint.address();
  const bool mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  const std::string host =
      mapped ? ip::make_address_v4(ip::v4_mapped, address.to_v6()).to_string() : address.to_string();
  return to_string(HostPort{host, endpoint.port()});
}

bool is_near(const ip::address& address) {
  return address.is_v4() ? collab::is_near(address.to_v4().to_bytes()) : collab::is_near(address.to_v6().to_bytes());
}

ip::address network_of(const ip::address& address) {
  if (!address.is_v6() || address.to_v6().is_v4_mapped()) return address;
  ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), std::uint8_t{0});
  return ip::address_v6(bytes);
}

bool prepare_socket(int fd, const std::string& congestion, Duration give_up) {
  const int on = 1;
  set(fd, IPPROTO_TCP, TCP_NODELAY, on);
  hold_unsent(fd, kUnsentBytes);
  const auto limit = static_cast<unsigned>(std::chrono::ceil<std::chrono::milliseconds>(give_up).count());
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, limit);
  if (congestion.empty() || congestion_of(fd) == congestion) return true;
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), static_cast<socklen_t>(congestion.size())) ==
         0;
}

void hold_unsent(int fd, std::size_t bytes) { set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(bytes)); }

std::string congestion_of(int fd) {
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0 ? name.data() : "";
}

std::optional<Duration> kernel_silence(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
}

Result<Endpoints> resolve(const HostPort& address, bool numeric_only) {
  const Result<SocketAddresses> found = look_up_host(address, numeric_only ? AI_NUMERICHOST : 0);
  if (!found.ok()) return found.status();
  Endpoints endpoints;
  for (const SocketAddress& one : *found) {
    Endpoint endpoint;
    if (one.length > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), &one.storage, one.length);
    endpoint.resize(one.length);
    endpoints.push_back(endpoint);
  }
  if (endpoints.empty()) return unavailable("the host \"" + address.host + "\" has no address");
  return endpoints;
}

namespace {

Result<Endpoints> resolve_by(const HostLookUp& look_up, const HostPort& address) {
  Endpoints endpoints;
  for (const std::string& host : look_up(address.host)) {
    const Result<Endpoints> numeric = resolve({host, address.port}, true);
    if (numeric.ok()) endpoints.insert(endpoints.end(), numeric->begin(), numeric->end());
  }
  if (endpoints.empty()) return unavailable("the host \"" + address.host + "\" has no address");
  return endpoints;
}

}  // namespace

void resolve_in_background(const HostPort& address, const HostLookUp& look_up,
                           const std::function<void(Result<Endpoints>)>& done) {
  try {
    std::thread([=] { done(look_up ? resolve_by(look_up, address) : resolve(address, false)); }).detach();
  } catch (const std::system_error& error) {
    done(unavailable("the host \"" + address.host + "\" cannot be looked up: " + error.what()));
  }
}

}  // namespace collab::tcp
