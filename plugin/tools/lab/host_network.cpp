#include "tools/lab/host_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdio>

namespace collab::lab {
namespace {

constexpr const char* kDevice = "lab0";
constexpr int kDeviceQueue = 10'000;  // packets that the kernel queues while the emulator is not scheduled

Status write_file(const char* path, const std::string& text) {
  const Fd file(::open(path, O_WRONLY | O_CLOEXEC));
  if (!file.open()) return system_error(std::string("cannot open ") + path);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error(std::string("cannot write ") + path);
  }
  return {};
}

ifreq request_for(const char* name) {
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  return request;
}

void set_address(ifreq& request, std::uint32_t address) {
  sockaddr_in inet{};
  inet.sin_family = AF_INET;
  inet.sin_addr.s_addr = htonl(address);
  std::memcpy(&request.ifr_addr, &inet, sizeof inet);
}

Status bring_up(int control, const char* name) {
  ifreq request = request_for(name);
  if (::ioctl(control, SIOCGIFFLAGS, &request) != 0)
    return system_error(std::string("cannot read the flags of ") + name);
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (::ioctl(control, SIOCSIFFLAGS, &request) != 0) return system_error(std::string("cannot bring up ") + name);
  return {};
}

Status configure(std::uint32_t address, unsigned mtu) {
  const Fd control(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control.open()) return system_error("cannot open a socket to configure the network");
  COLLAB_RETURN_IF_ERROR(bring_up(control.get(), "lo"));
  ifreq request = request_for(kDevice);
  request.ifr_mtu = static_cast<int>(mtu);
  if (::ioctl(control.get(), SIOCSIFMTU, &request) != 0) return system_error("cannot set the MTU of the TUN device");
  request.ifr_qlen = kDeviceQueue;
  // Only the machine's root may do this. The default of 500 suffices unless the machine is very busy.
  if (::ioctl(control.get(), SIOCSIFTXQLEN, &request) != 0 && errno != EPERM) {
    return system_error("cannot set the TUN device's queue");
  }
  set_address(request, address);
  if (::ioctl(control.get(), SIOCSIFADDR, &request) != 0) return system_error("cannot give the TUN device its address");
  set_address(request, 0xFFFF'FF00);
  if (::ioctl(control.get(), SIOCSIFNETMASK, &request) != 0) return system_error("cannot set the TUN device's netmask");
  return bring_up(control.get(), kDevice);
}

Result<Fd> open_tun() {
  Fd tun(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!tun.open()) {
    return unavailable(std::string("/dev/net/tun cannot be opened: ") + std::strerror(errno) +
                       "; the lab needs TUN devices (modprobe tun; in a container --device /dev/net/tun; without root, "
                       "read and write access to that file)");
  }
  ifreq request = request_for(kDevice);
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(tun.get(), TUNSETIFF, &request) != 0) return system_error("cannot make a TUN device");
  if (::ioctl(tun.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) {
    return system_error("the TUN device has no TCP offload");
  }
  return tun;
}

}  // namespace

Status take_rights() {
  if (::unshare(CLONE_NEWNET) == 0) return {};
  const int as_we_are = errno;
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return unavailable(
        std::string("this process may not make network namespaces (") + std::strerror(as_we_are) +
        ") nor a user namespace (" + std::strerror(errno) +
        "); run it as root, or in a container with --cap-add=SYS_ADMIN --cap-add=NET_ADMIN, or allow user "
        "namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces=10000, "
        "kernel.apparmor_restrict_unprivileged_userns=0, where they exist)");
  }
  // The same user inside as outside, so that files of the sites belong to the user who started the lab.
  COLLAB_RETURN_IF_ERROR(write_file("/proc/self/setgroups", "deny"));
  COLLAB_RETURN_IF_ERROR(write_file("/proc/self/uid_map", std::to_string(user) + " " + std::to_string(user) + " 1"));
  return write_file("/proc/self/gid_map", std::to_string(group) + " " + std::to_string(group) + " 1");
}

Result<HostNetwork> make_host_network(std::uint32_t address, unsigned mtu) {
  if (::unshare(CLONE_NEWNET) != 0) return system_error("cannot make a network namespace");
  HostNetwork made;
  made.name_space = Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!made.name_space.open()) return system_error("cannot open the new network namespace");
  // IPv4 only. If the file is missing, there is no IPv6 to turn off.
  if (::access("/proc/sys/net/ipv6/conf/default/disable_ipv6", F_OK) == 0) {
    COLLAB_RETURN_IF_ERROR(write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"));
  }
  Result<Fd> tun = open_tun();
  if (!tun.ok()) return tun.status();
  made.tun = *std::move(tun);
  COLLAB_RETURN_IF_ERROR(configure(address, mtu));
  return made;
}

std::string address_text(std::uint32_t address) {
  return std::to_string(address >> 24) + "." + std::to_string(address >> 16 & 0xFF) + "." +
         std::to_string(address >> 8 & 0xFF) + "." + std::to_string(address & 0xFF);
}

Status read_packets(int tun, int most_reads, std::vector<Packet>& out) {
  std::array<std::uint8_t, sizeof(OffloadHeader) + 66'000> buffer;
  for (int i = 0; i < most_reads; ++i) {
    const ssize_t got = ::read(tun, buffer.data(), buffer.size());
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) return {};
      return unavailable(std::string("the TUN device cannot be read: ") + std::strerror(errno));
    }
    if (static_cast<std::size_t>(got) <= sizeof(OffloadHeader)) continue;
    OffloadHeader header;
    std::memcpy(&header, buffer.data(), sizeof header);
    split(header, std::span(buffer).first(static_cast<std::size_t>(got)).subspan(sizeof header), out);
  }
  return {};
}

void write_packets(int tun, std::span<const Packet* const> packets) {
  std::vector<iovec> pieces;
  while (!packets.empty()) {
    const std::size_t count = joinable(packets);
    JoinedHeader header = joined_header(packets.first(count));
    pieces.clear();
    pieces.push_back({&header.offload, sizeof header.offload});
    if (header.size > 0) pieces.push_back({header.bytes.data(), header.size});
    for (const Packet* packet : packets.first(count)) {
      // writev() takes a non-const pointer, but only reads.
      pieces.push_back(
          {const_cast<std::uint8_t*>(packet->bytes.data()) + header.size, packet->bytes.size() - header.size});
    }
    [[maybe_unused]] const ssize_t written = ::writev(tun, pieces.data(), static_cast<int>(pieces.size()));
    packets = packets.subspan(count);
  }
}

}  // namespace collab::lab
