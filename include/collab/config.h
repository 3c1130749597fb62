// Every knob of collab: one table, one struct.
//
// A knob is the environment variable COLLAB_<NAME>, the field <name> of torch_collab.Options and a row of
// the table here; `collab config` prints it and the README's table is made from it.
// Threads and ownership: plain values; the environment is read by the caller's lookup, never here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collab/status.h"
#include "collab/types.h"

namespace collab {

struct Knob {
  std::string_view name;      // "sync_every"; the variable is COLLAB_SYNC_EVERY
  std::string_view default_;  // as a person would write it
  std::string_view unit;      // "steps or seconds", "s", "name", ...
  std::string_view range;     // "1..1000000000", "fp32|bf16|fp16|int8", ...
  std::string_view sentence;  // what it does, one sentence
  bool shared = false;        // true: all sites of a swarm must agree; sent as wire::Setting at join
  bool secret = false;        // true: its value is never shown
};

// After a delta with NaN or infinity for the third time running.
enum class OnNonfinite : std::uint8_t { kError, kContinue };

enum class WeightBy : std::uint8_t { kSamples, kSteps, kEqual };

// When a round is due: every so many steps, or once so many seconds have passed.
struct SyncEvery {
  std::uint64_t steps = 100;          // 0: by time
  std::chrono::milliseconds time{0};  // 0: by steps
};

struct Config {
  // Who we are and where the swarm is.
  std::string run = "default";  // the swarm's name; strangers are refused
  std::string site;             // this site's name; empty: made from the torchrun node or the host
  std::optional<std::uint32_t> site_index;
  std::uint32_t site_count = 1;          // round 0 waits for this many sites (way 1: the world's own count)
  std::string init_from;                 // the site the swarm begins with; empty: nobody in particular
  std::vector<std::string> coordinator;  // "host:port", tried in order; empty: one world
  std::string listen = "0.0.0.0:0";      // where other sites reach this one
  std::string advertise;                 // host others dial; empty: found out
  std::string transport = "auto";        // auto|ucx|tcp|gloo|loopback
  std::uint32_t connections = 0;         // connections a link; 0 (auto): what suits the transport

  // Links of the tcp transport: who may have one, and how much they may carry.
  std::string token;       // the swarm's key; secret
  std::string token_file;  // or a file that holds it
  std::string tls_cert;    // or certificates: PEM files
  std::string tls_key;
  std::string tls_ca;
  bool insecure = false;           // without a key, any address in the clear
  std::string congestion = "bbr";  // congestion control, where the system allows it; empty: the system's own
  double max_mbit_up = 0;          // 0: no cap
  double max_mbit_down = 0;
  double egress_gb = 0;  // 10^9 bytes of payload this site may send; 0: any number

  // Rounds.
  SyncEvery sync_every;
  Codecs codec;
  bool error_feedback = true;  // of codecs of 8 bits or fewer
  OuterId outer = OuterId::kAverage;
  double outer_lr = 1.0;  // default by outer: average 1.0, nesterov 0.7
  double outer_momentum = 0.9;
  WeightBy weight = WeightBy::kSamples;
  bool equal_shares = false;  // all who can own the same part of the vector, whatever their lines
  bool buffers = true;        // float buffers of the model belong to the vector
  OnNonfinite on_nonfinite = OnNonfinite::kError;
  std::uint32_t chunk_kib = 256;  // float32 KiB a chunk; a few of them fit a core's cache
  bool join_optimizer = true;     // a site that joins takes the optimizer's state of a member, too
  bool reseed = true;             // sites that are worlds of their own get different sampler seeds

  // Waits.
  std::chrono::milliseconds join_timeout{300'000};
  std::chrono::milliseconds round_timeout{1'800'000};
  std::chrono::milliseconds straggler_grace{60'000};
  std::chrono::milliseconds forget_after{0};  // a minority goes on without those who are missing; 0: never
  std::chrono::milliseconds link_grace{60'000};
  std::chrono::milliseconds heartbeat{1'000};
  std::chrono::milliseconds linger{600'000};  // the coordinator's host waits for the others at its end

  // What is kept and told.
  std::string state_dir;         // empty: nothing is written
  std::uint32_t save_every = 1;  // rounds
  std::string events;            // file for JSON lines; empty: none
  std::string log = "info";      // debug|info|warning|error|off
};

// The value in force of one knob and where it came from.
struct KnobValue {
  const Knob* knob = nullptr;
  std::string value;
  std::string source;  // "default", "environment", "options"
};

struct LoadedConfig {
  Config config;
  std::vector<KnobValue> values;  // every knob, in table order
};

[[nodiscard]] std::span<const Knob> knob_table();

// Reads all knobs. `environment` holds every variable that starts with COLLAB_; `options` are (name, text) pairs that
// win over it. An unknown option, and a variable near a knob's name, is an error that names that knob; other variables
// are passed over. A value out of range or in a wrong unit is an error that says what is accepted.
[[nodiscard]] Result<LoadedConfig> load_config(const std::vector<std::pair<std::string, std::string>>& environment,
                                               const std::vector<std::pair<std::string, std::string>>& options = {});

// (name, text) of the knobs all sites of a swarm must agree on, in table order, each value in one spelling.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> shared_settings(const LoadedConfig& loaded);

// The table as the README shows it.
[[nodiscard]] std::string knob_table_markdown();

}  // namespace collab
