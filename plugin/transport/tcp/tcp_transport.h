// The transport for sites on the open internet: TCP connections in TLS 1.3, dialled from whichever side can.
//
// A link is a session that outlives its connections: one for control, several for data. Data that a broken connection
// had not delivered goes over the others, or waits for a redial. A side that only dials needs no open port. All
// connections of all links come in on one port. Without a token or certificates, links go only to this machine and to
// private networks.
// Threads and ownership: as collab/transport.h says; the IO thread belongs to the transport. In a forked child the
// transport does nothing, not even when it is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collab/config.h"
#include "collab/transport.h"

namespace collab {

struct TcpOptions {
  std::uint32_t connections = 0;    // data connections, 1 to 64; the dialler's setting applies; 0: measured
  std::string advertise_host = {};  // the host that listen() returns; empty: the host it was given
  std::string token = {};           // the swarm's token, as `collab token` makes it
  std::string token_file = {};      // or a file that holds it, and perhaps its predecessor
  std::string tls_cert = {};        // or certificates, PEM files
  std::string tls_key = {};
  std::string tls_ca = {};
  bool insecure = false;                                 // unencrypted links to any address
  Duration link_grace = default_config().link_grace;     // how long a link lives without a connection
  Duration heartbeat = default_config().heartbeat;       // a connection silent for five of these is given up
  Duration death_wait = std::chrono::milliseconds(600);  // a dialler without connections redials by then, or is gone
  double max_mbit_up = 0;  // caps of the whole transport, megabit (10^6) a second; 0: none
  double max_mbit_down = 0;
  std::string congestion = default_config().tcp_congestion;  // where the system allows it; empty: the system's own
  std::shared_ptr<BufferPool> pool = nullptr;                // for received payloads; null: the transport makes its own
  std::uint64_t memory = 0;  // bytes that this process may use, for tests; 0: as the system says
  // For tests: returns the numeric addresses of a host name. Called on separate threads. Empty: the system's resolver.
  std::function<std::vector<std::string>(const std::string& host)> look_up = {};
};

// The options that the knobs set.
[[nodiscard]] TcpOptions tcp_options(const LoadedConfig& loaded);

// kInvalidArgument names the setting that is wrong.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_tcp_transport(TcpOptions options);

// 32 bytes derived from each of the swarm's tokens, for a purpose other than links. The spoken token's come first.
// Empty without a token. kInvalidArgument as above.
using SwarmSecrets = std::vector<std::vector<unsigned char>>;
[[nodiscard]] Result<SwarmSecrets> swarm_secrets(const TcpOptions& options, std::string_view purpose);

// Whether there is a token that `collab token` of this version made. Any other token is stretched. kInvalidArgument as
// above.
[[nodiscard]] Result<bool> has_made_token(const TcpOptions& options);

// What a tcp transport has done so far, for tests and status output.
struct TcpCounters {
  std::uint64_t connections_opened = 0;   // dialled or accepted, and greeted
  std::uint64_t connections_refused = 0;  // accepted by the system and turned away
  std::uint64_t segments_sent_again = 0;
  std::uint64_t segments_came_twice = 0;  // segments sent again by the other side that had arrived before
  std::uint64_t bytes_sent = 0;           // of segments, including those sent again
  std::uint64_t links_resumed = 0;        // links that had lost all connections and have one again
};
// The counters of a transport made here.
[[nodiscard]] TcpCounters tcp_counters(const Transport& transport);

}  // namespace collab
