#include "core/base/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace collab {
namespace {

constexpr std::size_t kMaxHostBytes = 239;  // with brackets, colon and port it fits the wire's 256

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

bool is_near_v4(std::span<const std::uint8_t> address) {
  std::uint32_t bits = 0;
  for (const std::uint8_t byte : address) bits = (bits << 8) | byte;
  const auto in = [&](std::uint32_t network, int length) { return (bits ^ network) >> (32 - length) == 0; };
  return in(0x7F00'0000, 8) || in(0x0A00'0000, 8) || in(0xAC10'0000, 12) || in(0xC0A8'0000, 16) || in(0xA9FE'0000, 16);
}

}  // namespace

bool is_near(std::span<const std::uint8_t> address) {
  if (address.size() == 4) return is_near_v4(address);
  if (address.size() != 16) return false;
  constexpr std::array<std::uint8_t, 16> kLoopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  constexpr std::array<std::uint8_t, 12> kMappedV4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::equal(kMappedV4.begin(), kMappedV4.end(), address.begin())) return is_near_v4(address.subspan(12));
  const bool unique_local = (address[0] & 0xFEU) == 0xFC;
  const bool link_local = address[0] == 0xFE && (address[1] & 0xC0U) == 0x80;
  return std::equal(kLoopback.begin(), kLoopback.end(), address.begin()) || unique_local || link_local;
}

bool is_host(std::string_view text) {
  if (text.empty() || text.size() > kMaxHostBytes) return false;
  const auto colons = std::count(text.begin(), text.end(), ':');
  // Only an IPv6 address has colons, and it may name its interface: fe80::1%eth0.
  if (colons == 1) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_host_character(c) || (colons > 1 && (c == ':' || c == '%')); });
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto wrong = [&](const std::string& why) {
    return invalid_argument("expected HOST:PORT or [IPv6]:PORT, got \"" + std::string(text) + "\": " + why +
                            " [knob.address]");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong("the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) return wrong("an IPv6 address must be in brackets");
  if (!is_host(host)) return wrong("\"" + std::string(host) + "\" is not a host's name or address");

  HostPort parsed{std::string(host), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed.port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return wrong("\"" + std::string(digits) + "\" is not a port (0 to 65535)");
  }
  return parsed;
}

std::string network_of(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  std::array<std::uint8_t, 16> bytes{};
  if (::inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), bytes.data()) != 1) {
    return std::string(host);
  }
  std::fill(bytes.begin() + 8, bytes.end(), std::uint8_t{0});
  std::array<char, INET6_ADDRSTRLEN> text{};
  return std::string(::inet_ntop(AF_INET6, bytes.data(), text.data(), text.size())) + "/64";
}

std::string to_string(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace collab
