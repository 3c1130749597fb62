// The transport for sites that reach each other: UCX over InfiniBand, shared memory or TCP.
//
// UCX chooses the network by itself and obeys UCX_TLS and its other variables. Over TCP it does not cross NAT or a
// one-way firewall: the listening side opens connections back to the dialler. Nothing is encrypted, so links go only to
// this machine and to private networks.
// Threads and ownership: as collab/transport.h says; the progress thread is the transport's own. In a forked child the
// transport does nothing, not even when it is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collab/config.h"
#include "collab/transport.h"

namespace collab {

struct UcxOptions {
  std::uint32_t connections = 2;               // endpoints per link, 1 to 16; the dialler's setting applies
  std::string advertise_host = {};             // the host that listen() returns; empty: the host it was given
  std::string listen = {};                     // the HOST:PORT that listen() will get; empty: not known
  std::string library_dir = {};                // where the libucx wheel keeps libucp.so.0; empty: elsewhere
  std::string transports = {};                 // UCX_TLS for this transport alone, e.g. "tcp"; empty: UCX's choice
  bool insecure = false;                       // unencrypted links to any address
  std::shared_ptr<BufferPool> pool = nullptr;  // for received payloads; null: the transport makes its own
};

// The options that the knobs set.
[[nodiscard]] UcxOptions ucx_options(const LoadedConfig& loaded);

// Loads UCX and opens a worker. kUnavailable: there is no usable UCX; the message lists the attempts.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options);

struct UcxDescription {
  std::string version;  // "1.22.0"
  std::string path;     // of the library
};
[[nodiscard]] Result<UcxDescription> ucx_description(const std::string& library_dir);

}  // namespace collab
