// Every knob of collab: one table, one struct.
//
// A knob is the environment variable COLLAB_<NAME>, the field <name> of torch_collab.Options and a row of
// the table here; `collab config` prints it, and docs/reference/knobs.md is made from it.
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

// Which ranks must have the same value.
enum class KnobScope : std::uint8_t {
  kRank,   // none: a rank or a site has its own
  kWorld,  // all ranks of a world: compared when it begins
  kSites,  // also all sites of a swarm: sent as wire::Setting at join, and compared there
};

// What a value is to another language; its text in all of them has a form and a range of its own.
enum class KnobType : std::uint8_t {
  kSwitch,
  kWhole,
  kWholeOrAuto,
  kWholeOrNone,
  kReal,
  kRealOrAuto,
  kTime,
  kStepsOrTime,
  kWord,  // one of those in the range
  kText,
  kAddresses,
};

struct Knob {
  std::string_view name;       // "sync_every"; the variable is COLLAB_SYNC_EVERY
  std::string_view default_;   // as a person would write it
  std::string_view unit = {};  // "steps or time", "time", "name", ...
  std::string_view range;      // "1..1000000000", "fp32|bf16|fp16|int8", ...
  std::string_view sentence;   // what it does, one sentence
  KnobScope scope = KnobScope::kWorld;
  bool advanced = false;           // nearly all users leave it as it is
  bool secret = false;             // its value is never shown
  std::string_view old_name = {};  // still taken, with a warning; two knobs may have had one name
};

// After a delta with NaN or infinity for the third time running.
enum class OnNonfinite : std::uint8_t { kError, kContinue };

// What becomes of parameters that were trained on while a round ran behind (COLLAB_OVERLAP). Of a common round, with s
// what was contributed, m the mean of what the sites contributed, A the new anchor:
enum class MergeRule : std::uint8_t {
  kRebase,  // parameters + (A - m) + factor * (m - s)
  kMix,     // factor * parameters + (1 - factor) * A (Streaming DiLoCo, arXiv:2501.18512): drops local progress
};
struct Merge {
  MergeRule rule = MergeRule::kRebase;
  double factor = 0;
};

enum class WeightBy : std::uint8_t { kSamples, kSteps, kEqual };

// When a round is due: every so many steps, once so many seconds have passed, or as the swarm's leader chooses.
struct SyncEvery {
  std::uint64_t steps = 0;            // 0: by time
  std::chrono::milliseconds time{0};  // 0: by steps
  bool automatic = false;             // the swarm's leader chooses; steps until it has
  std::uint64_t samples = 0;          // by so many of the whole swarm from round to round; 0: by the time rounds take
};

// With sync_every in steps: how many steps each site makes in all, and in which last part of them the period shrinks.
struct SyncAnneal {
  std::uint64_t steps = 0;  // 0: the period does not shrink
  double share = 0.1;
};

// The values in force. A fresh one has the defaults of the table, which alone says them.
struct Config {
  Config();

  // The site, and where the swarm is.
  std::string preset;  // values for several knobs; empty: none
  std::string run;     // the swarm's name; strangers are refused
  std::string site;    // this site's name; empty: made from the torchrun node or the host
  std::optional<std::uint32_t> site_index;
  std::uint32_t num_shards{};            // of the data, among worlds of their own
  std::uint32_t min_sites{};             // round 0 waits for this many sites
  std::string init_from;                 // the site the swarm begins with; empty: no particular one
  std::vector<std::string> coordinator;  // "host:port", tried in order; empty: one world
  std::string listen;                    // where other sites reach this one
  std::string advertise;                 // host others dial; empty: found out
  std::string transport;
  std::uint32_t connections{};  // connections a link; 0 (auto): what suits the transport

  // Links of the tcp transport: which peers may have one, and how much they may carry.
  std::string token;       // the swarm's token; secret
  std::string token_file;  // or a file that holds it
  std::string tls_cert;    // or certificates: PEM files
  std::string tls_key;
  std::string tls_ca;
  bool insecure{};             // without token and certificates, any address in the clear
  std::string tcp_congestion;  // congestion control, where the system allows it; empty: the system's own
  double max_mbit_up{};        // 0: no cap
  double max_mbit_down{};
  double egress_budget_gb{};  // 10^9 bytes of payload this site may send; 0: any number

  // Rounds.
  SyncEvery sync_every;
  double target_overhead{};     // with sync_every=auto: the part of the time that rounds may take
  std::uint32_t sync_warmup{};  // rounds in which the period doubles from one step
  SyncAnneal sync_anneal;
  std::uint32_t fragments{};  // of the model, that take turns in being averaged
  bool overlap{};             // rounds run behind the training
  Merge merge;                // with overlap
  Codecs codec;
  bool error_feedback{};    // of codecs of 8 bits or fewer
  double feedback_decay{};  // what of the residual comes into the next delta
  std::string keep_fp16;    // which tensors travel at 16 bits with a codec of fewer
  OuterId outer_optimizer{};
  double outer_lr{};  // 0: by the number of sites that contribute
  double outer_momentum{};
  double outer_clip{};  // the largest norm of a mean delta; 0: any
  WeightBy weight{};
  bool equal_shares{};  // all sites that can own have the same part, whatever their lines
  bool buffers{};       // float buffers of the model belong to the vector
  OnNonfinite on_nonfinite{};
  std::uint32_t chunk_kib{};  // float32 KiB a chunk; a few of them fit a core's cache
  bool join_optimizer{};      // a joining site also takes a member's optimizer state
  bool reseed{};              // sites that are worlds of their own get different sampler seeds

  // Waits.
  std::chrono::milliseconds join_timeout{};
  std::chrono::milliseconds round_timeout{};
  std::chrono::milliseconds straggler_grace{};
  std::chrono::milliseconds forget_after{};  // a minority goes on without missing sites; 0: never
  std::chrono::milliseconds link_grace{};
  std::chrono::milliseconds heartbeat{};
  std::chrono::milliseconds linger{};  // the coordinator's host waits for the others at its end

  // What is kept and told.
  std::string state_dir;       // empty: nothing is written
  std::uint32_t save_every{};  // rounds
  std::string events_file;     // of JSON lines; empty: none
  std::string log_level;
};

// A fresh one: what is not said is so.
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

// Reads all knobs. `environment` holds every variable that starts with COLLAB_; `options` are (name, text) pairs that
// win over it, and it wins over a preset, which wins over `rendezvous`: (name, text) pairs of what the start itself
// says. An unknown option, and a variable near a knob's name, is an error that names that knob; other variables are
// passed over. A value out of range or in a wrong unit is an error that says what is accepted, and so are two values
// for one knob, by its name and by its old one.
[[nodiscard]] Result<LoadedConfig> load_config(const KnobTexts& environment, const KnobTexts& options = {},
                                               const KnobTexts& rendezvous = {});

// Warnings to log once about variables in `environment`: about variables that are no knobs, and about old names.
[[nodiscard]] std::vector<std::string> environment_warnings(const KnobTexts& environment);

// Warnings to log once about values that do not go together.
[[nodiscard]] std::vector<std::string> value_warnings(const Config& config);

// (name, text) of the knobs all sites of a swarm must agree on, in table order, each value in one spelling.
[[nodiscard]] KnobTexts shared_settings(const Config& config);

}  // namespace collab
