// What the tcp transport asks of the system beyond Asio: socket options, which addresses are near, names.
//
// Threads: any. Ownership: sockets belong to the caller. A name that needs the resolver is looked up on a thread of its
// own, which may outlive the caller when the network's name server does not answer; it then touches only its own state.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "core/base/address.h"
#include "core/base/own_descriptor.h"

namespace collab::tcp {

using Endpoint = boost::asio::ip::tcp::endpoint;
using Endpoints = std::vector<Endpoint>;

// Neither a forked child nor a program that is run keeps it: a link and a port end with the process. Closed by
// close_own() only.
void make_own(int fd);
template <typename Socket>
void close_own(Socket& socket) {
  if (!socket.is_open()) return;
  clear_close_on_fork(socket.native_handle());
  boost::system::error_code ignored;
  socket.close(ignored);
}

[[nodiscard]] std::string to_text(const Endpoint& endpoint);
// What one stranger may have many addresses of: the first 64 bits of IPv6. Of IPv4 the address.
[[nodiscard]] boost::asio::ip::address network_of(const boost::asio::ip::address& address);
// This machine or a private network: where traffic in the clear is accepted without being asked for.
[[nodiscard]] bool is_near(const boost::asio::ip::address& address);

// A socket holds about this much that it was given and has not sent yet.
inline constexpr std::size_t kUnsentBytes = std::size_t{128} << 10;
void hold_unsent(int fd, std::size_t bytes);

// `congestion` is used where the system allows it; false: it keeps its own. Buffers are left to the kernel. Bytes that
// have not left are kept few, so that a slow connection holds little and what is urgent overtakes.
bool prepare_socket(int fd, const std::string& congestion, Duration give_up);
[[nodiscard]] std::string congestion_of(int fd);
// How long the other side's kernel has been silent; nothing when the system does not say.
[[nodiscard]] std::optional<Duration> kernel_silence(int fd);

[[nodiscard]] Result<Endpoints> resolve(const HostPort& address, bool numeric_only);  // may block unless numeric
// Where `look_up` is given, it knows the numeric addresses of a host's name, instead of the system.
using HostLookUp = std::function<std::vector<std::string>(const std::string& host)>;
void resolve_in_background(const HostPort& address, const HostLookUp& look_up,
                           const std::function<void(Result<Endpoints>)>& done);

}  // namespace collab::tcp
