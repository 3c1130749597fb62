#include "core/base/address.h"

#include <algorithm>
#include <charconv>

namespace collab {
namespace {

constexpr std::size_t kMaxHostBytes = 248;  // with brackets, colon and port it fits the wire's 256

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

}  // namespace

bool is_host(std::string_view text) {
  if (text.empty() || text.size() > kMaxHostBytes) return false;
  const auto colons = std::count(text.begin(), text.end(), ':');
  // A colon only in an IPv6 address, which may name its interface: fe80::1%eth0.
  if (colons == 1) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_host_character(c) || (colons > 1 && (c == ':' || c == '%')); });
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto wrong = [&](const std::string& why) {
    return invalid_argument("expected HOST:PORT or [IPv6]:PORT, got \"" + std::string(text) + "\": " + why);
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong("the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) return wrong("an IPv6 address stands in brackets");
  if (!is_host(host)) return wrong("\"" + std::string(host) + "\" is not a host's name or address");

  HostPort parsed{std::string(host), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed.port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return wrong("\"" + std::string(digits) + "\" is not a port (0 to 65535)");
  }
  return parsed;
}

std::string to_string(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace collab
