#include "core/base/knobs.h"

#include <algorithm>

#include "core/base/knob_forms.h"
#include "core/base/knob_own_forms.h"

namespace collab {
namespace {

using namespace knobs;  // NOLINT(google-build-using-namespace): the forms, used in every row

constexpr std::string_view kName =
    "a name of at most 64 letters, digits, '.', '_' and '-' that does not begin with '.'";
constexpr std::string_view kPath = "a path in UTF-8 of at most 4000 bytes";
constexpr std::string_view kCongestion = "a name as in net.ipv4.tcp_available_congestion_control, or nothing";
constexpr std::string_view kWords =
    "none, or words of letters, digits, '.', '_' and '-' with commas between them, at most 1000 characters";
constexpr std::string_view kListen = "HOST:PORT or [IPv6]:PORT, port 0 for a free one";

constexpr std::int64_t kDayMs = std::int64_t{24} * 3600 * 1000;
constexpr auto kRank = KnobScope::kRank;
constexpr auto kSites = KnobScope::kSites;

using C = Config;
constexpr auto kRows = std::to_array<KnobRow>({
    // The site, and where the swarm is.
    {{.name = "preset",
      .default_ = "",
      .range = "lan|wan|slow|pretrain",
      .sentence = "Sets several knobs under one name; knobs that you set yourself win over it. Default: none.",
      .scope = kRank},
     kPreset},
    {{.name = "run",
      .default_ = "default",
      .unit = "name",
      .range = "1..64 characters",
      .sentence = "The swarm's name; sites with another name are refused. In a torchrun world without a coordinator "
                  "the default is --rdzv-id, if given."},
     text<&C::run, is_name, false>(kName)},
    {{.name = "site",
      .default_ = "",
      .unit = "name",
      .range = "1..64 characters",
      .sentence = "This site's name; machines with the same name form one site. Default: made from the torchrun node "
                  "or the host.",
      .scope = kRank},
     text<&C::site, is_name, true>(kName)},
    {{.name = "site_index",
      .default_ = "",
      .range = "0..4095",
      .sentence = "This site's number in the swarm. Default: the coordinator gives one.",
      .scope = kRank},
     kSiteIndex},
    {{.name = "num_shards",
      .default_ = "1",
      .unit = "shards",
      .range = "1..4096",
      .sentence = "The number of sites, each a world of its own, that divide the data; site_index says which part is "
                  "this site's.",
      .old_name = "site_count"},
     whole<&C::num_shards, 1, 4096>()},
    {{.name = "min_sites",
      .default_ = "1",
      .unit = "sites",
      .range = "1..4096",
      .sentence = "How many sites round 0 waits for; a single world counts its own sites.",
      .old_name = "site_count"},
     whole<&C::min_sites, 1, 4096>()},
    {{.name = "init_from",
      .default_ = "",
      .unit = "name",
      .range = "1..64 characters",
      .sentence = "The site whose parameters the swarm begins with: the first agreement waits for it. Default: a site "
                  "that holds an anchor, else one that has loaded a checkpoint, else the lowest site.",
      .scope = kRank},
     text<&C::init_from, is_name, true>(kName)},
    {{.name = "coordinator",
      .default_ = "",
      .unit = "addresses",
      .range = "HOST:PORT[,HOST:PORT...]",
      .sentence = "Where the coordinator listens; several are tried in order. Default: the world's first site serves "
                  "it."},
     kCoordinator},
    {{.name = "listen",
      .default_ = "0.0.0.0:0",
      .unit = "address",
      .range = "HOST:PORT",
      .sentence = "Where other sites reach this one.",
      .scope = kRank},
     text<&C::listen, is_listen_address, false>(kListen)},
    {{.name = "advertise",
      .default_ = "",
      .unit = "host",
      .range = "HOST",
      .sentence =
          "The host that others dial to reach this site; none: this site cannot be dialled, and dials the others. "
          "Default: detected.",
      .scope = kRank},
     kAdvertise},
    {{.name = "transport",
      .default_ = "auto",
      .range = "auto|tcp|ucx|gloo",
      .sentence = "What carries messages between sites. auto is tcp, which encrypts with a token or certificates. ucx "
                  "and gloo never encrypt: use them only in trusted networks, and at all sites and the coordinator "
                  "alike.",
      .scope = kRank},
     choice<&C::transport, kTransports>()},
    {{.name = "connections",
      .default_ = "auto",
      .unit = "connections",
      .range = "1..64 or auto",
      .sentence =
          "Connections of each link; more help on long, lossy lines. auto: tcp finds the number by measuring, ucx has "
          "2.",
      .advanced = true},
     kConnections},

    // Links of the tcp transport.
    {{.name = "token",
      .default_ = "",
      .unit = "secret",
      .range = "32..4096 characters",
      .sentence =
          "The swarm's token, made once by `collab token`: tcp links are encrypted, and sites without it are refused.",
      .scope = kRank,
      .secret = true},
     kToken},
    {{.name = "token_file",
      .default_ = "",
      .unit = "file",
      .range = "a path",
      .sentence = "A file that holds the swarm's token, instead of token; a second line may hold the previous one.",
      .scope = kRank},
     text<&C::token_file, is_path, true>(kPath)},
    {{.name = "tls_cert",
      .default_ = "",
      .unit = "file",
      .range = "a path",
      .sentence = "This site's certificate (PEM), instead of a token; with tls_key and tls_ca.",
      .scope = kRank},
     text<&C::tls_cert, is_path, true>(kPath)},
    {{.name = "tls_key",
      .default_ = "",
      .unit = "file",
      .range = "a path",
      .sentence = "The private key of tls_cert (PEM).",
      .scope = kRank},
     text<&C::tls_key, is_path, true>(kPath)},
    {{.name = "tls_ca",
      .default_ = "",
      .unit = "file",
      .range = "a path",
      .sentence = "The authority that signs the certificates of all sites (PEM).",
      .scope = kRank},
     text<&C::tls_ca, is_path, true>(kPath)},
    {{.name = "insecure",
      .default_ = "0",
      .range = "0|1",
      .sentence = "Whether unencrypted links (tcp without token and certificates, and ucx) may go to and come from "
                  "addresses that are not private.",
      .scope = kRank,
      .advanced = true},
     on_or_off<&C::insecure>()},
    {{.name = "tcp_congestion",
      .default_ = "bbr",
      .unit = "name",
      .range = "1..15 letters, digits, '_' and '-'",
      .sentence =
          "The congestion control that tcp links ask the system for; if it is not allowed, they use the system's own.",
      .scope = kRank,
      .advanced = true,
      .old_name = "congestion"},
     text<&C::tcp_congestion, is_congestion, true>(kCongestion)},
    {{.name = "max_mbit_up",
      .default_ = "0",
      .unit = "Mbit/s",
      .range = "0..100000",
      .sentence = "The most that tcp links may send together for a site's rounds, to leave room for others; 0: no cap.",
      .scope = kRank},
     real<&C::max_mbit_up, 0, 1'000'000'000>()},
    {{.name = "max_mbit_down",
      .default_ = "0",
      .unit = "Mbit/s",
      .range = "0..100000",
      .sentence = "The most that tcp links may receive together for a site's rounds; its peers send more slowly to "
                  "keep to it. 0: no cap.",
      .scope = kRank},
     real<&C::max_mbit_down, 0, 1'000'000'000>()},
    {{.name = "egress_budget_gb",
      .default_ = "0",
      .unit = "GB",
      .range = "0..100000",
      .sentence =
          "How much this site may send for rounds, models and optimizer state, in 10^9 bytes of payload (with "
          "state_dir, across restarts too). When the next round does not fit, this site leaves and trains on alone. 0: "
          "no budget.",
      .scope = kRank,
      .old_name = "egress_gb"},
     real<&C::egress_budget_gb, 0, 1'000'000'000>()},

    // Rounds.
    {{.name = "sync_every",
      .default_ = "100",
      .unit = "steps or time",
      .range = "1..1000000000 steps, 10ms..24h, auto, auto:1..10000 or samples:1..1000000000000",
      .sentence =
          "How often sites agree: after this many inner steps, or after this much time. auto: the shortest period that "
          "target_overhead allows. The swarm's leader chooses it from what the sites measure, at most 10000 steps; "
          "until then it is the preset's, 10, or the number given (auto:32). samples:4096: the number of steps in "
          "which all sites together train on that many samples.",
      .scope = kSites},
     kSyncEvery},
    {{.name = "target_overhead",
      .default_ = "0.02",
      .unit = "part of the training's time",
      .range = "0.001..0.5",
      .sentence = "With sync_every=auto, how much rounds may hold up the training. Does not apply with overlap, where "
                  "a round only has to end before the next one is due.",
      .scope = kSites},
     real<&C::target_overhead, 10, 5'000>()},
    {{.name = "sync_warmup",
      .default_ = "0",
      .unit = "rounds",
      .range = "0..100000",
      .sentence =
          "The number of rounds at the start that come early: one after each step, then the period doubles up to "
          "sync_every. Does not apply if sync_every is a time.",
      .scope = kSites,
      .advanced = true},
     whole<&C::sync_warmup, 0, 100'000>()},
    {{.name = "sync_anneal",
      .default_ = "0",
      .unit = "steps, or steps:part",
      .range = "0, or 1..100000000 steps, with :0.01..1",
      .sentence = "How many steps each site makes in all. Over the last tenth of them, or the given part (20000:0.2), "
                  "the period shrinks evenly to an eighth; 0: it does not. Needs sync_every in steps.",
      .scope = kSites,
      .advanced = true},
     kSyncAnneal},
    {{.name = "fragments",
      .default_ = "1",
      .range = "1..64",
      .sentence = "The number of parts of the model that rounds average in turn. Each round moves one part, and there "
                  "are that many rounds in a period of sync_every. With auto the period is the time from round to "
                  "round. A model with fewer than 1024 elements a part is averaged whole.",
      .scope = kSites},
     whole<&C::fragments, 1, kMostFragments>()},
    {{.name = "overlap",
      .default_ = "0",
      .range = "0|1",
      .sentence = "Whether rounds run behind the training. The training goes on meanwhile and merges the result once "
                  "it has arrived; this takes memory for one more copy of the parameters in float32.",
      .scope = kSites},
     on_or_off<&C::overlap>()},
    {{.name = "merge",
      .default_ = "rebase:0.5",
      .range = "rebase:0..1 or mix:0..1",
      .sentence = "With overlap, how a round's result is combined with what was trained meanwhile. rebase:K moves the "
                  "parameters by what the round changed, and by K times the site's difference from the mean. mix:A "
                  "keeps A of the parameters and takes the rest from the anchor, which drops a part of what was "
                  "trained.",
      .scope = kSites,
      .advanced = true},
     kMerge},
    {{.name = "codec",
      .default_ = "fp16",
      .range = "fp32|bf16|fp16|int8|int4|int4-e3m0|int2|topk64|topk128, or UP/DOWN",
      .sentence = "How deltas travel: exact, rounded to so many bits, or only the 64 or 128 largest of each 4096. "
                  "UP/DOWN (int4/int8): deltas use the first, their mean the second.",
      .scope = kSites},
     kCodec},
    {{.name = "error_feedback",
      .default_ = "1",
      .range = "0|1",
      .sentence = "Whether what a codec of 8 bits or fewer leaves out is added to the next round; takes memory for one "
                  "more copy of the parameters in float32.",
      .scope = kSites,
      .advanced = true},
     on_or_off<&C::error_feedback>()},
    {{.name = "feedback_decay",
      .default_ = "auto",
      .range = "0..1 or auto",
      .sentence = "The factor by which error feedback multiplies what earlier rounds left out, before it goes into the "
                  "next round: below 1, older remainders count less. auto: 0.95 with top-k, else 1.",
      .scope = kSites,
      .advanced = true},
     kFeedbackDecay},
    {{.name = "keep_fp16",
      .default_ = "none",
      .unit = "words",
      .range = "none, or small and parts of tensors' names with commas between them",
      .sentence =
          "Which tensors travel as fp16 when the codec has fewer bits: small means those of fewer than 65536 elements, "
          "any other word those whose names contain it (small,embedding,norm). Float buffers always do.",
      .scope = kSites,
      .advanced = true},
     text<&C::keep_fp16, is_word_list, false>(kWords)},
    {{.name = "outer_optimizer",
      .default_ = "average",
      .range = "average|nesterov|rda",
      .sentence = "How the mean delta is applied. average: as it is. nesterov: with DiLoCo's momentum. rda: with each "
                  "tensor scaled to the average length of the sites' deltas.",
      .scope = kSites,
      .old_name = "outer"},
     choice<&C::outer_optimizer, kOuters>()},
    {{.name = "outer_lr",
      .default_ = "auto",
      .range = "0.0001..10 or auto",
      .sentence =
          "The outer optimizer's learning rate. auto: 1 with average and rda; with nesterov 0.4, 0.6, 0.6, 0.8 if 1, "
          "2, 4, 8 sites contribute, plus 0.05 for each doubling of sync_every above 30 steps, at most 1.",
      .scope = kSites},
     kOuterLr},
    {{.name = "outer_momentum",
      .default_ = "0.9",
      .range = "0..0.9999",
      .sentence = "The outer optimizer's momentum; nesterov only.",
      .scope = kSites},
     real<&C::outer_momentum, 0, 9'999>()},
    {{.name = "outer_clip",
      .default_ = "0",
      .unit = "norm",
      .range = "0..100000",
      .sentence = "The largest norm of the mean delta that is applied: a longer one is shrunk to it. 0: no limit.",
      .scope = kSites,
      .advanced = true},
     real<&C::outer_clip, 0, 1'000'000'000>()},
    {{.name = "weight",
      .default_ = "samples",
      .range = "samples|steps|equal",
      .sentence = "What gives a site's delta its weight in the mean.",
      .scope = kSites},
     choice<&C::weight, kWeights>()},
    {{.name = "buffers",
      .default_ = "1",
      .range = "0|1",
      .sentence = "Whether the model's float buffers are averaged with its parameters; only those that are persistent "
                  "and finite when training begins.",
      .scope = kSites,
      .advanced = true},
     on_or_off<&C::buffers>()},
    {{.name = "on_nonfinite",
      .default_ = "error",
      .range = "error|continue",
      .sentence = "What a site does when its delta was left out three times in a row because of NaN or infinity: end "
                  "with an error that names the tensor, or train on with the anchor.",
      .scope = kRank,
      .advanced = true},
     choice<&C::on_nonfinite, kOnNonfinite>()},
    {{.name = "shares",
      .default_ = "auto",
      .range = "auto|equal",
      .sentence = "How much of the vector each site reduces. auto: by the speed of its line. equal: the same for all. "
                  "Set it where the coordinator runs.",
      .advanced = true},
     choice<&C::equal_shares, kShares>()},
    {{.name = "chunk_kib",
      .default_ = "256",
      .unit = "KiB of float32",
      .range = "4..65536, a multiple of 4",
      .sentence = "How much of a slice travels at once; smaller ones overlap better, larger ones cost less per byte.",
      .scope = kSites,
      .advanced = true},
     whole<&C::chunk_kib, 4, 65536, 4>()},
    {{.name = "join_optimizer",
      .default_ = "1",
      .range = "0|1",
      .sentence = "Whether a site whose optimizer is fresh when it joins takes a member's optimizer state; with 0 it "
                  "does not give its own to other sites either.",
      .advanced = true},
     on_or_off<&C::join_optimizer>()},
    {{.name = "reseed",
      .default_ = "1",
      .range = "0|1",
      .sentence = "Whether sites that are worlds of their own add their number to a default DistributedSampler's seed.",
      .advanced = true},
     on_or_off<&C::reseed>()},

    // Waits.
    {{.name = "join_timeout",
      .default_ = "300s",
      .unit = "time",
      .range = "100ms..24h",
      .sentence = "How long a site tries to reach and join the swarm; at the coordinator, how long it waits for "
                  "min_sites sites."},
     time<&C::join_timeout, 100, kDayMs>()},
    {{.name = "round_timeout",
      .default_ = "1800s",
      .unit = "time",
      .range = "100ms..24h",
      .sentence = "How long a round waits for sites, and how long its exchange may take, before it goes on without the "
                  "sites that hold it up; if all lines are slow, three times as long."},
     time<&C::round_timeout, 100, kDayMs>()},
    {{.name = "straggler_grace",
      .default_ = "60s",
      .unit = "time",
      .range = "0s..24h",
      .sentence = "How long a ready majority of sites waits for the others; a later site joins the next round. Set it "
                  "where the coordinator runs.",
      .scope = kRank},
     time<&C::straggler_grace, 0, kDayMs>()},
    {{.name = "forget_after",
      .default_ = "0s",
      .unit = "time",
      .range = "0s..24h",
      .sentence = "How long sites that are not a majority wait for the others before they go on without them, as "
                  "another run; 0s: until an operator runs collab forget. Set it where the coordinator runs.",
      .scope = kRank,
      .advanced = true},
     time<&C::forget_after, 0, kDayMs>()},
    {{.name = "link_grace",
      .default_ = "60s",
      .unit = "time",
      .range = "20ms..24h",
      .sentence = "How long the others wait for a silent site; at least twice heartbeat.",
      .advanced = true},
     time<&C::link_grace, 20, kDayMs>()},
    {{.name = "heartbeat",
      .default_ = "1s",
      .unit = "time",
      .range = "10ms..60s",
      .sentence = "How often sites and the coordinator send a heartbeat.",
      .advanced = true},
     time<&C::heartbeat, 10, 60'000>()},
    {{.name = "linger",
      .default_ = "600s",
      .unit = "time",
      .range = "0s..24h",
      .sentence = "How long the coordinator's host waits, when it ends, for sites that still train.",
      .advanced = true},
     time<&C::linger, 0, kDayMs>()},

    // State, events and log.
    {{.name = "state_dir",
      .default_ = "",
      .unit = "folder",
      .range = "a path",
      .sentence =
          "Where the leader keeps the anchor, the outer state and the site's record. Default: only the record is kept, "
          "in $XDG_STATE_HOME/torch-collab.",
      .scope = kRank},
     text<&C::state_dir, is_path, true>(kPath)},
    {{.name = "save_every",
      .default_ = "1",
      .unit = "rounds",
      .range = "1..1000000",
      .sentence = "The number of rounds between two writes to state_dir.",
      .advanced = true},
     whole<&C::save_every, 1, 1'000'000>()},
    {{.name = "events_file",
      .default_ = "",
      .unit = "file",
      .range = "a path",
      .sentence = "The file to which events are appended, one JSON object a line. Default: none.",
      .scope = kRank,
      .old_name = "events"},
     text<&C::events_file, is_path, true>(kPath)},
    {{.name = "log_level",
      .default_ = "info",
      .range = "debug|info|warning|error|off",
      .sentence = "The lowest level of messages that are printed.",
      .scope = kRank,
      .old_name = "log"},
     choice<&C::log_level, kLogLevels>()},
});

}  // namespace

std::span<const KnobRow> knob_rows() { return kRows; }

std::string variable_of(std::string_view name) {
  std::string variable(kVariablePrefix);
  for (const char c : name) variable += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return variable;
}

const KnobRow* row_of(std::string_view name) {
  const auto row = std::ranges::find_if(kRows, [&](const KnobRow& r) { return r.knob.name == name; });
  return row == kRows.end() ? nullptr : &*row;
}

std::vector<const KnobRow*> rows_meant(std::string_view name) {
  std::vector<const KnobRow*> rows;
  for (const KnobRow& row : kRows) {
    if (!name.empty() && (row.knob.name == name || row.knob.old_name == name)) rows.push_back(&row);
  }
  return rows;
}

std::vector<const KnobRow*> rows_of_variable(std::string_view variable) {
  for (const KnobRow& row : kRows) {
    for (const std::string_view name : {row.knob.name, row.knob.old_name}) {
      if (!name.empty() && variable_of(name) == variable) return rows_meant(name);
    }
  }
  return {};
}

}  // namespace collab
