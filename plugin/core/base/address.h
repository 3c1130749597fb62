// "host:port" and "[v6]:port": where a process listens or is dialled, and which addresses are near.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collab/status.h"

namespace collab {

struct HostPort {
  std::string host;  // a name, an IPv4 or an IPv6 address, without brackets
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

// A name, an IPv4 or a bare IPv6 address.
[[nodiscard]] bool is_host(std::string_view text);

// kInvalidArgument says what is wrong. Port 0 means "any free port": the caller refuses it where it makes no sense.
[[nodiscard]] Result<HostPort> parse_host_port(std::string_view text);
[[nodiscard]] std::string to_string(const HostPort& address);  // brackets an IPv6 address

// The network whose addresses share one allowance. For "host:port" it is the IPv4 address or the name. For IPv6 it is
// the first half of the address, because a host usually owns all addresses with the same first half.
[[nodiscard]] std::string network_of(std::string_view address);

// Whether the address is of this machine or a private network. There, plaintext traffic is allowed by default.
// `address` has the 4 bytes of IPv4 or the 16 of IPv6, in network order; with any other length it is not near.
[[nodiscard]] bool is_near(std::span<const std::uint8_t> address);

}  // namespace collab
