// Addresses as people write them: "host:port", "[v6]:port".
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace collab {

// In place of a host in COLLAB_ADVERTISE, this word says that other sites cannot dial this site.
inline constexpr std::string_view kNotDialable = "none";

// Does "host:port" mean every address of this machine?
[[nodiscard]] bool is_wildcard(const std::string& address);

// The address that others dial: a bound wildcard host ("0.0.0.0:4000") becomes `advertise` (or 127.0.0.1 when it is
// empty); a concrete host, or an address of another form ("gloo:3"), stays as it is.
[[nodiscard]] std::string dialable(const std::string& bound, const std::string& advertise);

}  // namespace collab
