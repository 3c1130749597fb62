#include "core/base/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>

namespace collab {
namespace {

bool near(const char* text) {
  std::array<std::uint8_t, 16> bytes{};
  const bool six = std::string_view(text).find(':') != std::string_view::npos;
  EXPECT_EQ(inet_pton(six ? AF_INET6 : AF_INET, text, bytes.data()), 1) << text;
  return is_near(std::span(bytes).first(six ? 16 : 4));
}

TEST(Address, ThisMachineAndPrivateNetworksAreNear) {
  for (const char* text : {"127.0.0.1", "127.255.0.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.9.9",
                           "169.254.1.1", "::1", "fe80::1", "febf::1", "fd00::1", "fc00::1", "::ffff:10.0.0.7"}) {
    EXPECT_TRUE(near(text)) << text;
  }
}

TEST(Address, TheRestIsNot) {
  for (const char* text : {"93.184.216.34", "172.32.0.1", "172.15.255.255", "192.169.0.1", "11.0.0.1", "100.64.0.1",
                           "0.0.0.0", "2606:4700::1111", "::", "::2", "fec0::1", "fe00::1", "::ffff:93.184.216.34"}) {
    EXPECT_FALSE(near(text)) << text;
  }
  EXPECT_FALSE(is_near({}));
}

TEST(Address, ManyIPv6AddressesOfOnePeerAreOneNetwork) {
  EXPECT_EQ(network_of("10.0.0.7:4000"), "10.0.0.7");
  EXPECT_EQ(network_of("paris.example:4000"), "paris.example");
  EXPECT_EQ(network_of("[2001:db8:1:2:3:4:5:6]:4000"), "2001:db8:1:2::/64");
  EXPECT_EQ(network_of("[2001:db8:1:2::9]:1"), "2001:db8:1:2::/64");
  EXPECT_EQ(network_of("[2001:db8:1:3::9]:1"), "2001:db8:1:3::/64");
  EXPECT_EQ(network_of("[fe80::1%eth0]:1"), "fe80::/64");
  EXPECT_EQ(network_of("[::1]:1"), "::/64");
  EXPECT_EQ(network_of(""), "");
}

TEST(Address, NothingFollowsThePort) { EXPECT_FALSE(parse_host_port("10.0.0.7:4000+ucx5123").ok()); }

TEST(Address, TheLongestFitsTheWire) {
  std::string host = "::";
  while (is_host(host + "a")) host += "a";
  EXPECT_LE(to_string(HostPort{host, 65535}).size(), 256U);
}

}  // namespace
}  // namespace collab
