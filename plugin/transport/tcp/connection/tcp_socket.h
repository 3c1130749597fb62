// System functions that the tcp transport needs beyond Asio: socket options, near addresses, name look-ups.
//
// Threads: any. Ownership: sockets belong to the caller. A name that needs the resolver is looked up on its own thread.
// This thread may outlive the caller if the name server does not answer; it touches only its own state.
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

// Keeps the descriptor from forked children and from programs that they run, so that links and ports end with this
// process. Close it with close_own() only.
void make_own(int fd);
template <typename Socket>
void close_own(Socket& socket) {
  if (!socket.is_open()) return;
  clear_close_on_fork(socket.native_handle());
  boost::system::error_code ignored;
  socket.close(ignored);
}

[[nodiscard]] std::string to_text(const Endpoint& endpoint);
// The network of an address: the first 64 bits for IPv6, as one stranger may own all addresses below; the whole address
// for IPv4.
[[nodiscard]] boost::asio::ip::address network_of(const boost::asio::ip::address& address);
// Whether the address is on this machine or in a private network. Traffic in the clear is accepted there by default.
[[nodiscard]] bool is_near(const boost::asio::ip::address& address);

// About how many unsent bytes a socket holds.
inline constexpr std::size_t kUnsentBytes = std::size_t{128} << 10;
void hold_unsent(int fd, std::size_t bytes);

// Sets `congestion` if the system allows it; false: the system keeps its own. The kernel sizes the buffers. The socket
// holds few unsent bytes, so that a slow connection holds little and urgent data overtakes.
bool prepare_socket(int fd, const std::string& congestion, Duration give_up);
[[nodiscard]] std::string congestion_of(int fd);
// How long the other side's kernel has been silent. Nothing if the system does not tell.
[[nodiscard]] std::optional<Duration> kernel_silence(int fd);

[[nodiscard]] Result<Endpoints> resolve(const HostPort& address, bool numeric_only);  // may block unless numeric
// If `look_up` is set, it returns a host's numeric addresses in place of the system's resolver.
using HostLookUp = std::function<std::vector<std::string>(const std::string& host)>;
void resolve_in_background(const HostPort& address, const HostLookUp& look_up,
                           const std::function<void(Result<Endpoints>)>& done);

}  // namespace collab::tcp
