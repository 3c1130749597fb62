// A host's network: a namespace without a name, with one TUN device in it that leads to the emulator.
//
// Nothing of it outlives the processes that hold it: the namespace goes with its last process and descriptor, the
// device with its descriptor, however they end. Threads: called from the main thread before there are others (a process
// with threads may not enter a user namespace).
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

// Takes the rights to make namespaces: those of root, otherwise those of a new user namespace. The message says what is
// missing.
[[nodiscard]] Status take_rights();

// The calling thread is in the new namespace afterwards.
[[nodiscard]] Result<HostNetwork> make_host_network(std::uint32_t address, unsigned mtu);

// "10.99.0.1"
[[nodiscard]] std::string address_text(std::uint32_t address);

// Reads what waits on the device, at most so many times, appending packets.
// kUnavailable: the device is gone.
[[nodiscard]] Status read_packets(int tun, int most_reads, std::vector<Packet>& out);
// Writes all; a packet that the kernel does not take is lost, as on any line.
void write_packets(int tun, std::span<const Packet* const> packets);

}  // namespace collab::lab
