// Turns hosts and ports into socket addresses, without blocking the calling thread.
//
// Threads: any. A name that needs the resolver is looked up on its own thread. This thread may outlive the caller if
// the name server does not answer; it touches only its own state.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>

#include "collab/status.h"
#include "core/base/host_lookup.h"

namespace collab {

// Translates only numeric addresses; anything else is kUnavailable.
[[nodiscard]] Result<SocketAddresses> resolve_numeric(const HostPort& address);
// May block as long as the system's resolver does.
[[nodiscard]] Result<SocketAddresses> resolve_name(const HostPort& address, bool to_listen);
// Calls `done` on a separate thread.
void resolve_in_background(HostPort address, std::function<void(Result<SocketAddresses>)> done);

// Like is_near of core/base/address.h.
[[nodiscard]] bool is_near(const sockaddr_storage& address);

// The interfaces of this machine that have one of these addresses, in the format of UCX_NET_DEVICES: "eth0,eth1".
[[nodiscard]] std::string interfaces_with(const SocketAddresses& addresses);
[[nodiscard]] bool is_any(const sockaddr_storage& address);  // 0.0.0.0 or [::]

// With numbers, not names.
[[nodiscard]] HostPort host_port_of(const sockaddr_storage& address);

}  // namespace collab
