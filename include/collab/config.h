// Every knob of collab: one table, one struct.
//
// A knob is the environment variable COLLAB_<NAME>, the field <name> of torch_collab.Options and a row of
// the table here; `collab config` prints it, and docs/reference/knobs.md is made from it.
// Threads and ownership: plain values. Callers read the environment and pass it in.
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

// Which ranks must have the same value.
enum class KnobScope : std::uint8_t {
  kRank,   // none: each rank or site has its own value
  kWorld,  // all ranks of a world, which compare it when they start
  kSites,  // also all sites of a swarm: sent as wire::Setting at join, and compared by the coordinator
};

// A knob's type, for bindings to other languages. Each type has its own text form.
enum class KnobType : std::uint8_t {
  kSwitch,
  kWhole,
  kWholeOrAuto,
  kWholeOrNone,
  kReal,
  kRealOrAuto,
  kTime,
  kStepsOrTime,
  kWord,  // one of the words that `range` lists
  kText,
  kAddresses,
};

struct Knob {
  std::string_view name;       // "sync_every"; the variable is COLLAB_SYNC_EVERY
  std::string_view default_;   // as a user would write it
  std::string_view unit = {};  // "steps or time", "time", "name", ...
  std::string_view range;      // "1..1000000000", "fp32|bf16|fp16|int8", ...
  std::string_view sentence;   // what the knob does, in one sentence
  KnobScope scope = KnobScope::kWorld;
  bool advanced = false;           // nearly all users keep the default
  bool secret = false;             // its value is never shown
  std::string_view old_name = {};  // still accepted, with a warning; two knobs may share an old name
};

// What happens when a delta has NaN or infinity for the third time in a row.
enum class OnNonfinite : std::uint8_t { kError, kContinue };

// How a round's result is merged into parameters that were trained further while it ran (COLLAB_OVERLAP). Here s is
// this site's contribution, m the mean of all contributions, and A the new anchor:
enum class MergeRule : std::uint8_t {
  kRebase,  // parameters + (A - m) + factor * (m - s)
  kMix,     // factor * parameters + (1 - factor) * A (Streaming DiLoCo, arXiv:2501.18512): drops local progress
};
struct Merge {
  MergeRule rule = MergeRule::kRebase;
  double factor = 0;
};

enum class WeightBy : std::uint8_t { kSamples, kSteps, kEqual };

// When a round is due: after a number of steps, after a time, or as the swarm's leader chooses.
struct SyncEvery {
  std::uint64_t steps = 0;            // 0: by time
  std::chrono::milliseconds time{0};  // 0: by steps
  bool automatic = false;             // the swarm's leader chooses; `steps` applies until then
  std::uint64_t samples = 0;          // with automatic: samples of the whole swarm per round; 0: by target_overhead
};

// With sync_every in steps: how many steps each site makes in all, and in which last part of them the period shrinks.
struct SyncAnneal {
  std::uint64_t steps = 0;  // 0: the period does not shrink
  double share = 0.1;
};

// The values in force. A new Config has the defaults, which only the table defines.
struct Config {
  Config();

  // The site, and where the swarm is.
  std::string preset;  // values for several knobs; empty: none
  std::string run;     // the swarm's name; strangers are refused
  std::string site;    // this site's name; empty: made from the torchrun node or the host
  std::optional<std::uint32_t> site_index;
  std::uint32_t num_shards{};            // of the data, if each site is its own world
  std::uint32_t min_sites{};             // round 0 waits for this many sites
  std::string init_from;                 // the site whose model the swarm starts from; empty: any
  std::vector<std::string> coordinator;  // "host:port", tried in order; empty: one world
  std::string listen;                    // the address at which other sites reach this one
  std::string advertise;                 // host that other sites dial; empty: detected
  std::string transport;
  std::uint32_t connections{};  // per link; 0 (auto): chosen by the transport

  // Links of the tcp transport: which peers are accepted, and how much the links may carry.
  std::string token;       // the swarm's token; secret
  std::string token_file;  // or a file that holds it
  std::string tls_cert;    // or certificates: PEM files
  std::string tls_key;
  std::string tls_ca;
  bool insecure{};             // without token and certificates, use unencrypted links to any address
  std::string tcp_congestion;  // congestion control, where the system allows it; empty: the system's own
  double max_mbit_up{};        // 0: no cap
  double max_mbit_down{};
  double egress_budget_gb{};  // payload this site may send, in 10^9 bytes; 0: no limit

  // Rounds.
  SyncEvery sync_every;
  double target_overhead{};     // with sync_every=auto: the share of the time that rounds may take
  std::uint32_t sync_warmup{};  // first rounds, in which the period doubles, starting at one step
  SyncAnneal sync_anneal;
  std::uint32_t fragments{};  // parts of the model, averaged in turn
  bool overlap{};             // rounds run behind the training
  Merge merge;                // with overlap
  Codecs codec;
  bool error_feedback{};    // for codecs of 8 bits or fewer
  double feedback_decay{};  // the factor of the residual in the next delta
  std::string keep_fp16;    // the tensors sent at 16 bits if the codec has fewer
  OuterId outer_optimizer{};
  double outer_lr{};  // 0: chosen by the number of contributors
  double outer_momentum{};
  double outer_clip{};  // the largest norm of a mean delta; 0: no limit
  WeightBy weight{};
  bool equal_shares{};  // all sites that can own slices get equal shares, whatever their lines
  bool buffers{};       // the parameter vector includes the model's float buffers
  OnNonfinite on_nonfinite{};
  std::uint32_t chunk_kib{};  // float32 KiB per chunk; a few chunks fit a core's cache
  bool join_optimizer{};      // a joining site also fetches a member's optimizer state
  bool reseed{};              // if each site is its own world, sites get different sampler seeds

  // Waits.
  std::chrono::milliseconds join_timeout{};
  std::chrono::milliseconds round_timeout{};
  std::chrono::milliseconds straggler_grace{};
  std::chrono::milliseconds forget_after{};  // after this a minority goes on without missing sites; 0: never
  std::chrono::milliseconds link_grace{};
  std::chrono::milliseconds heartbeat{};
  std::chrono::milliseconds linger{};  // how long the coordinator's host waits for the others at its end

  // Files and logs.
  std::string state_dir;       // empty: no state is written
  std::uint32_t save_every{};  // rounds
  std::string events_file;     // JSON lines; empty: none
  std::string log_level;
};

// A Config with the default of every knob.
[[nodiscard]] const Config& default_config();

inline constexpr std::string_view kFromRendezvous = "rendezvous";

// The value in force of one knob and where it came from.
struct KnobValue {
  const Knob* knob = nullptr;
  std::string value;
  std::string source;  // "default", "rendezvous", "preset wan", "environment" or "options"
};

struct LoadedConfig {
  Config config;
  std::vector<KnobValue> values;  // every knob, in table order
};

[[nodiscard]] std::span<const Knob> knob_table();

using KnobTexts = std::vector<std::pair<std::string, std::string>>;

// Reads all knobs. `environment` holds every variable that starts with COLLAB_; `options` and `rendezvous` are (name,
// text) pairs, and `rendezvous` comes from the rendezvous itself. Precedence, highest first: options, environment, a
// preset, rendezvous. An unknown option, or a variable close to a knob's name, is an error that names that knob; other
// variables are ignored. A value out of range or in a wrong unit is an error that says what is accepted. So are two
// values for one knob, by its name and by its old one.
[[nodiscard]] Result<LoadedConfig> load_config(const KnobTexts& environment, const KnobTexts& options = {},
                                               const KnobTexts& rendezvous = {});

// Warnings to log once about variables in `environment` that are no knobs or have old names.
[[nodiscard]] std::vector<std::string> environment_warnings(const KnobTexts& environment);

// Warnings to log once about values that contradict each other.
[[nodiscard]] std::vector<std::string> value_warnings(const Config& config);

// (name, text) of the knobs that all sites of a swarm must agree on, in table order. Equal values have equal texts.
[[nodiscard]] KnobTexts shared_settings(const Config& config);

}  // namespace collab
