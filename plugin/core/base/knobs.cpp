#include "core/base/knobs.h"

#include <algorithm>

#include "collab/codec.h"
#include "core/base/knob_parsers.h"
#include "core/base/text.h"

namespace collab {
namespace {

using namespace knobs;  // NOLINT(google-build-using-namespace): the forms, used in every row

// ---- values of choices ---------------------------------------------------------------------------

template <typename T>
using Choice = std::pair<std::string_view, T>;

constexpr std::array<Choice<OuterId>, 2> kOuters{{{"average", OuterId::kAverage}, {"nesterov", OuterId::kNesterov}}};
constexpr std::array<Choice<WeightBy>, 3> kWeights{
    {{"samples", WeightBy::kSamples}, {"steps", WeightBy::kSteps}, {"equal", WeightBy::kEqual}}};
constexpr std::array<Choice<OnNonfinite>, 2> kOnNonfinite{
    {{"error", OnNonfinite::kError}, {"continue", OnNonfinite::kContinue}}};
constexpr std::array<Choice<bool>, 2> kShares{{{"auto", false}, {"equal", true}}};
constexpr std::array<Choice<std::string_view>, 5> kTransports{
    {{"auto", "auto"}, {"ucx", "ucx"}, {"tcp", "tcp"}, {"gloo", "gloo"}, {"loopback", "loopback"}}};
constexpr std::array<Choice<std::string_view>, 5> kLogLevels{
    {{"debug", "debug"}, {"info", "info"}, {"warning", "warning"}, {"error", "error"}, {"off", "off"}}};

// ---- texts ---------------------------------------------------------------------------------------

// Names become parts of file names and of lines people read.
bool is_name(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return text.size() <= 64 && text.find_first_not_of(kAllowed) == std::string_view::npos && text.front() != '.';
}

bool is_path(std::string_view text) {
  return text.size() <= 4000 && text.find('\0') == std::string_view::npos && is_valid_utf8(text);
}

// One line, so that a file read by mistake is noticed.
bool is_token(std::string_view text) {
  return text.size() >= 32 && text.size() <= 4096 && text.find_first_of(std::string_view("\n\r\0", 3)) == text.npos;
}
std::string format_token(const Config& config) { return config.token.empty() ? "" : "(set, not shown)"; }

// As the kernel takes them.
bool is_congestion(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  return text.size() <= 15 && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool is_listen_address(std::string_view text) { return parse_host_port(text).ok(); }

// The word for "cannot be dialled" is that word however it is written, never a host's name.
bool parse_advertise(std::string_view text, Config& config) {
  if (!text.empty() && !is_host(text)) return false;
  constexpr std::string_view kNone = "none";
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const bool none = std::ranges::equal(text, kNone, {}, small);
  config.advertise = none ? kNone : text;
  return true;
}

// ---- knobs with a form of their own --------------------------------------------------------------

// 0 is a spelling of nobody's.
bool parse_connections(std::string_view text, Config& config) {
  config.connections = 0;
  return text == "auto" || parse_whole<&Config::connections, 1, 64>(text, config);
}
std::string format_connections(const Config& config) {
  return config.connections == 0 ? "auto" : std::to_string(config.connections);
}

bool parse_codecs(std::string_view text, Config& config) {
  const Result<Codecs> codecs = codecs_from_name(text);
  if (codecs.ok()) config.codec = *codecs;
  return codecs.ok();
}
std::string format_codecs(const Config& config) { return name_of(config.codec); }

bool parse_site_index(std::string_view text, Config& config) {
  config.site_index.reset();
  if (text.empty()) return true;
  const auto value = number<std::uint32_t>(text);
  if (!value || *value > 4095) return false;
  config.site_index = *value;
  return true;
}
std::string format_site_index(const Config& config) {
  return config.site_index ? std::to_string(*config.site_index) : std::string();
}

bool parse_coordinator(std::string_view text, Config& config) {
  config.coordinator.clear();
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto address = parse_host_port(text.substr(0, comma));
    if (!address.ok() || address->port == 0) return false;
    config.coordinator.push_back(to_string(*address));
    const bool trailing_comma = comma + 1 == text.size();
    if (trailing_comma || config.coordinator.size() > 16) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return true;
}
std::string format_coordinator(const Config& config) {
  std::string text;
  for (const std::string& address : config.coordinator) text += (text.empty() ? "" : ",") + address;
  return text;
}

// A bare number is steps here, never seconds.
bool parse_sync_every(std::string_view text, Config& config) {
  if (const auto steps = number<std::uint64_t>(text)) {
    config.sync_every = {*steps, Milliseconds(0)};
    return *steps >= 1 && *steps <= 1'000'000'000;
  }
  if (text.empty() || (text.back() >= '0' && text.back() <= '9')) return false;
  const auto time = time_span(text);
  if (!time || *time < Milliseconds(10) || *time > std::chrono::hours(24)) return false;
  config.sync_every = {0, *time};
  return true;
}
std::string format_sync_every(const Config& config) {
  return config.sync_every.steps > 0 ? std::to_string(config.sync_every.steps) : time_text(config.sync_every.time);
}

// ---- the table -----------------------------------------------------------------------------------

constexpr std::string_view kWhole = "a whole number";
constexpr std::string_view kReal = "a number";
constexpr std::string_view kTime = "a time such as 30s, 500ms, 2m or 1h (a bare number is seconds)";
constexpr std::string_view kSwitch = "1, true, yes, 0, false or no";
constexpr std::string_view kName =
    "a name of at most 64 letters, digits, '.', '_' and '-' that does not begin with '.'";
constexpr std::string_view kPath = "a path in UTF-8 of at most 4000 bytes";
constexpr std::string_view kSecret = "one line of 32 to 4096 characters, as `collab token` makes it";
constexpr std::string_view kCongestion = "a name as in net.ipv4.tcp_available_congestion_control, or nothing";
constexpr std::string_view kChoice = "one word";
constexpr std::string_view kCodec = "a codec, or one for each way such as int4/int8";
constexpr std::string_view kListen = "HOST:PORT or [IPv6]:PORT, port 0 for a free one";
constexpr std::string_view kHosts = "HOST:PORT or [IPv6]:PORT, at most 16 of them with commas between";
constexpr std::string_view kHost = "a host's name or address, without a port";
constexpr std::string_view kEvery =
    "a number of steps such as 100, or a time with its unit such as 30s, 500ms, 2m or 1h";

constexpr std::int64_t kDayMs = 24 * 3600 * 1000;

using C = Config;
constexpr auto kRows = std::to_array<KnobRow>({
    // Who we are and where the swarm is.
    {{"run", "default", "name", "1..64 characters", "The swarm's name; sites with another one are refused."},
     kName,
     parse_text<&C::run, is_name, false>,
     format_text<&C::run>},
    {{"site", "", "name", "1..64 characters",
      "This site's name; machines with the same one are one site. Default: made from the torchrun node or the host."},
     kName,
     parse_text<&C::site, is_name, true>,
     format_text<&C::site>},
    {{"site_index", "", "", "0..4095", "This site's number in the swarm. Default: the coordinator gives one."},
     kWhole,
     parse_site_index,
     format_site_index},
    {{"site_count", "1", "sites", "1..4096", "How many sites the first agreement waits for; one world counts its own."},
     kWhole,
     parse_whole<&C::site_count, 1, 4096>,
     format_whole<&C::site_count>},
    {{"init_from", "", "name", "1..64 characters",
      "The site whose parameters the swarm begins with: the first agreement waits for it. Default: who holds an "
      "anchor, else who had loaded a checkpoint, else the lowest site."},
     kName,
     parse_text<&C::init_from, is_name, true>,
     format_text<&C::init_from>},
    {{"coordinator", "", "addresses", "HOST:PORT[,HOST:PORT...]",
      "Where the coordinator listens, tried in order. Default: the world's first site serves it."},
     kHosts,
     parse_coordinator,
     format_coordinator},
    {{"listen", "0.0.0.0:0", "address", "HOST:PORT", "Where other sites reach this one."},
     kListen,
     parse_text<&C::listen, is_listen_address, false>,
     format_text<&C::listen>},
    {{"advertise", "", "host", "HOST",
      "The host others dial to reach this site; none: it cannot be dialled, and dials out. Default: found out."},
     kHost,
     parse_advertise,
     format_text<&C::advertise>},
    {{"transport", "auto", "", "auto|ucx|tcp|gloo|loopback",
      "What carries messages between sites. auto is tcp, which encrypts with a key. ucx and gloo never encrypt: for "
      "networks in which all are trusted, and alike at all sites and the coordinator."},
     kChoice,
     parse_choice<&C::transport, kTransports>,
     format_text<&C::transport>},
    {{"connections", "auto", "connections", "1..64 or auto",
      "Connections a link; more help on long, lossy lines. auto: tcp finds the number by measuring, ucx has 2."},
     kWhole,
     parse_connections,
     format_connections},

    // Links of the tcp transport.
    {{"token", "", "secret", "32..4096 characters",
      "The swarm's key, made once by `collab token`: links of tcp are encrypted, and who lacks it is refused.", false,
      true},
     kSecret,
     parse_text<&C::token, is_token, true>,
     format_token},
    {{"token_file", "", "file", "a path",
      "A file that holds the swarm's key, instead of token; in a second line perhaps the one before it."},
     kPath,
     parse_text<&C::token_file, is_path, true>,
     format_text<&C::token_file>},
    {{"tls_cert", "", "file", "a path", "This site's certificate (PEM), instead of a token; with tls_key and tls_ca."},
     kPath,
     parse_text<&C::tls_cert, is_path, true>,
     format_text<&C::tls_cert>},
    {{"tls_key", "", "file", "a path", "The private key of tls_cert (PEM)."},
     kPath,
     parse_text<&C::tls_key, is_path, true>,
     format_text<&C::tls_key>},
    {{"tls_ca", "", "file", "a path", "The authority that signs the certificates of all sites (PEM)."},
     kPath,
     parse_text<&C::tls_ca, is_path, true>,
     format_text<&C::tls_ca>},
    {{"insecure", "0", "", "0|1",
      "Whether links in the clear, tcp without a key and ucx, may go to and come from addresses that are not private."},
     kSwitch,
     parse_switch<&C::insecure>,
     format_switch<&C::insecure>},
    {{"congestion", "bbr", "name", "1..15 letters, digits, '_' and '-'",
      "The congestion control tcp links ask the system for; where it does not allow that one, its own is used."},
     kCongestion,
     parse_text<&C::congestion, is_congestion, true>,
     format_text<&C::congestion>},
    {{"max_mbit_up", "0", "Mbit/s", "0..100000",
      "What tcp links may send in all for a site's rounds, so that others have room; 0: no cap."},
     kReal,
     parse_real<&C::max_mbit_up, 0, 1'000'000'000>,
     format_real<&C::max_mbit_up>},
    {{"max_mbit_down", "0", "Mbit/s", "0..100000",
      "What tcp links may receive in all for a site's rounds: the peers hold back; 0: no cap."},
     kReal,
     parse_real<&C::max_mbit_down, 0, 1'000'000'000>,
     format_real<&C::max_mbit_down>},

    {{"egress_gb", "0", "GB", "0..1000000",
      "What this site may send of rounds, models and moments, in 10^9 bytes of payload (with state_dir, over restarts "
      "too). When the next round does not fit, this site leaves and trains on alone. 0: no budget."},
     kReal,
     parse_real<&C::egress_gb, 0, 1'000'000'000>,
     format_real<&C::egress_gb>},

    // Rounds.
    {{"sync_every", "100", "steps or time", "1..1000000000 steps or 10ms..24h",
      "How often sites agree: every so many inner steps, or once so much time has passed.", true},
     kEvery,
     parse_sync_every,
     format_sync_every},
    {{"codec", "fp16", "", "fp32|bf16|fp16|int8|int4|int4-e3m0|int2|topk64|topk128, or UP/DOWN",
      "How deltas travel: exact, rounded to so many bits, or only the 64 or 128 largest of each 4096. "
      "UP/DOWN (int4/int8): deltas by the one, their mean by the other.",
      true},
     kCodec,
     parse_codecs,
     format_codecs},
    {{"error_feedback", "1", "", "0|1",
      "Whether what a codec of 8 bits or fewer leaves out is put into the next round; takes memory for one more copy "
      "of the parameters in float32.",
      true},
     kSwitch,
     parse_switch<&C::error_feedback>,
     format_switch<&C::error_feedback>},
    {{"outer", "average", "", "average|nesterov",
      "What is done with the mean delta: taken as it is, or DiLoCo's momentum.", true},
     kChoice,
     parse_choice<&C::outer, kOuters>,
     format_choice<&C::outer, kOuters>},
    {{"outer_lr", "1 with average, 0.7 with nesterov", "", "0.0001..10", "The outer optimizer's learning rate.", true},
     kReal,
     parse_real<&C::outer_lr, 1, 100'000>,
     format_real<&C::outer_lr>},
    {{"outer_momentum", "0.9", "", "0..0.9999", "The outer optimizer's momentum; nesterov only.", true},
     kReal,
     parse_real<&C::outer_momentum, 0, 9'999>,
     format_real<&C::outer_momentum>},
    {{"weight", "samples", "", "samples|steps|equal", "What a site's delta counts by.", true},
     kChoice,
     parse_choice<&C::weight, kWeights>,
     format_choice<&C::weight, kWeights>},
    {{"buffers", "1", "", "0|1",
      "Whether the model's float buffers are averaged with its parameters: those that are persistent and finite when "
      "training begins.",
      true},
     kSwitch,
     parse_switch<&C::buffers>,
     format_switch<&C::buffers>},
    {{"on_nonfinite", "error", "", "error|continue",
      "What a site does when its delta was left out three times running because of NaN or infinity: end with an error "
      "that names the tensor, or train on with the anchor."},
     kChoice,
     parse_choice<&C::on_nonfinite, kOnNonfinite>,
     format_choice<&C::on_nonfinite, kOnNonfinite>},
    {{"shares", "auto", "", "auto|equal",
      "How much of the vector each site reduces: by how fast its line has been, or all the same. Counts where the "
      "coordinator runs."},
     kChoice,
     parse_choice<&C::equal_shares, kShares>,
     format_choice<&C::equal_shares, kShares>},
    {{"chunk_kib", "256", "KiB of float32", "4..65536, a multiple of 4",
      "How much of a slice travels at once; smaller overlaps better, larger costs less a byte.", true},
     kWhole,
     parse_whole<&C::chunk_kib, 4, 65536, 4>,
     format_whole<&C::chunk_kib>},
    {{"join_optimizer", "1", "", "0|1",
      "Whether a site whose optimizer is fresh when it joins takes the optimizer's state of a member; with 0 it gives "
      "none either."},
     kSwitch,
     parse_switch<&C::join_optimizer>,
     format_switch<&C::join_optimizer>},
    {{"reseed", "1", "", "0|1",
      "Whether sites that are worlds of their own add their number to a default DistributedSampler's seed."},
     kSwitch,
     parse_switch<&C::reseed>,
     format_switch<&C::reseed>},

    // Waits.
    {{"join_timeout", "300s", "time", "100ms..24h",
      "How long a site tries to reach and join the swarm; at the coordinator, how long it waits for site_count sites."},
     kTime,
     parse_time<&C::join_timeout, 100, kDayMs>,
     format_time<&C::join_timeout>},
    {{"round_timeout", "1800s", "time", "100ms..24h",
      "How long a round may take before it goes on without those who hold it up."},
     kTime,
     parse_time<&C::round_timeout, 100, kDayMs>,
     format_time<&C::round_timeout>},
    {{"straggler_grace", "60s", "time", "0s..24h",
      "How long a majority of sites that is ready waits for the others; who is later joins the next round. Counts "
      "where the coordinator runs."},
     kTime,
     parse_time<&C::straggler_grace, 0, kDayMs>,
     format_time<&C::straggler_grace>},
    {{"forget_after", "0s", "time", "0s..24h",
      "How long sites that are no majority wait for the others before they go on without them, as another run; 0s: "
      "without end, until somebody says collab forget. Counts where the coordinator runs."},
     kTime,
     parse_time<&C::forget_after, 0, kDayMs>,
     format_time<&C::forget_after>},
    {{"link_grace", "60s", "time", "20ms..24h", "How long a silent site is waited for; at least twice heartbeat."},
     kTime,
     parse_time<&C::link_grace, 20, kDayMs>,
     format_time<&C::link_grace>},
    {{"heartbeat", "1s", "time", "10ms..60s", "How often sites and the coordinator show that they live."},
     kTime,
     parse_time<&C::heartbeat, 10, 60'000>,
     format_time<&C::heartbeat>},
    {{"linger", "600s", "time", "0s..24h",
      "How long the coordinator's host waits at its end for sites still training."},
     kTime,
     parse_time<&C::linger, 0, kDayMs>,
     format_time<&C::linger>},

    // What is kept and told.
    {{"state_dir", "", "folder", "a path",
      "Where the leader keeps anchor, outer state and the site's record. Default: the record alone, in "
      "$XDG_STATE_HOME/torch-collab."},
     kPath,
     parse_text<&C::state_dir, is_path, true>,
     format_text<&C::state_dir>},
    {{"save_every", "1", "rounds", "1..1000000", "Rounds between two writes to state_dir."},
     kWhole,
     parse_whole<&C::save_every, 1, 1'000'000>,
     format_whole<&C::save_every>},
    {{"events", "", "file", "a path", "Where events are appended, one JSON object a line. Default: nowhere."},
     kPath,
     parse_text<&C::events, is_path, true>,
     format_text<&C::events>},
    {{"log", "info", "", "debug|info|warning|error|off", "The least important messages that are printed."},
     kChoice,
     parse_choice<&C::log, kLogLevels>,
     format_text<&C::log>},
});

}  // namespace

std::span<const KnobRow> knob_rows() { return kRows; }

std::string variable_of(const Knob& knob) {
  std::string variable(kVariablePrefix);
  for (const char c : knob.name) variable += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return variable;
}

const KnobRow* row_of_variable(std::string_view variable) {
  const auto row = std::ranges::find_if(kRows, [&](const KnobRow& r) { return variable_of(r.knob) == variable; });
  return row == kRows.end() ? nullptr : &*row;
}

}  // namespace collab
