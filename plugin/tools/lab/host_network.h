// A host's network: an unnamed namespace with one TUN device that leads to the emulator.
//
// The namespace disappears with its last process and descriptor, and the device with its descriptor, however their
// holders end. Threads: called from the main thread before there are others (a process with threads may not enter a
// user namespace).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/lab/fd.h"
#include "tools/lab/segments.h"

namespace collab::lab {

struct HostNetwork {
  Fd name_space;
  Fd tun;  // non-blocking, with OffloadHeader and TCP offload
};

// Gets the rights to make namespaces: root's, otherwise those of a new user namespace. The message says what is
// missing.
[[nodiscard]] Status take_rights();

// Moves the calling thread into the new namespace.
[[nodiscard]] Result<HostNetwork> make_host_network(std::uint32_t address, unsigned mtu);

// "10.99.0.1"
[[nodiscard]] std::string address_text(std::uint32_t address);

// Reads waiting packets from the device, with at most `most_reads` reads, and appends them to `out`.
// kUnavailable: the device is gone.
[[nodiscard]] Status read_packets(int tun, int most_reads, std::vector<Packet>& out);
// Writes all packets. A packet that the kernel does not take is lost, as on any line.
void write_packets(int tun, std::span<const Packet* const> packets);

}  // namespace collab::lab
