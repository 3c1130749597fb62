// The transport for sites that reach each other: UCX over InfiniBand, shared memory or TCP.
//
// UCX picks the way by itself; UCX_TLS and its other variables are obeyed. Over TCP it does not cross NAT or a
// one-way firewall: the side that listens opens connections back to the side that dialled. Nothing is encrypted, so
// only this machine and private networks are spoken to.
// Threads and ownership: as collab/transport.h says; the progress thread is the transport's own. In a forked
// child the transport does nothing, its destruction included.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collab/config.h"
#include "collab/transport.h"

namespace collab {

struct UcxOptions {
  std::uint32_t connections = 2;               // endpoints a link, 1 to 16; the dialler's number counts
  std::string advertise_host = {};             // what listen() gives as the host; empty: as it was asked
  std::string listen = {};                     // HOST:PORT it will be asked to listen at; empty: not known
  std::string library_dir = {};                // where the libucx wheel keeps libucp.so.0; empty: elsewhere
  std::string transports = {};                 // UCX_TLS for this transport alone, e.g. "tcp"; empty: UCX's choice
  bool insecure = false;                       // speak in the clear to any address
  std::shared_ptr<BufferPool> pool = nullptr;  // for received payloads; null: one of its own
};

// What the knobs say.
[[nodiscard]] UcxOptions ucx_options(const LoadedConfig& loaded);

// Loads UCX and opens a worker. kUnavailable when there is no usable UCX; the message says what was tried.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options);

struct UcxDescription {
  std::string version;  // "1.22.0"
  std::string path;     // of the library
};
[[nodiscard]] Result<UcxDescription> ucx_description(const std::string& library_dir);

}  // namespace collab
