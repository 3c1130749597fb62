// The description of a lab, and its syntax: hosts, the paths between them, and changes to both.
//
// Grammar (also in plugin/tools/README.md):
//   HOST    NAME[:DOWN/UP | :BOTH][,nat][,queue=MS]                       rates in Mbit/s of IP packets, decimal
//   CHANGE  cut HOST [HOST] | heal [HOST [HOST]] | rate HOST DOWN/UP | link HOST HOST KEY=VALUE... |
//           path HOST HOST KEY=VALUE...
//   KEY     delay rtt jitter (milliseconds)  loss reorder duplicate (percent)
//   SCRIPT  lines of "SECONDS CHANGE"; # begins a comment
//
// Threads: plain values and pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "collab/status.h"
#include "tools/lab/packet.h"

namespace collab::lab {

using HostIndex = std::size_t;

// The rate of IP packets, with headers.
struct Rate {
  double mbit_per_s = 0;  // 0: unlimited
  bool operator==(const Rate&) const = default;
  [[nodiscard]] bool unlimited() const { return mbit_per_s <= 0; }
  // How long the line is busy with this many bytes.
  [[nodiscard]] Time time_for(std::size_t bytes) const;
};

struct HostSpec {
  std::string name;
  Rate down{};
  Rate up{};
  bool nat = false;
  Time queue = std::chrono::milliseconds(100);  // size of each of its two queues, as time at the line's rate
};

// One direction between two hosts.
struct PathSpec {
  Time delay{};
  Time jitter{};         // extra delay up to this, which varies slowly and never reorders
  double loss = 0;       // probabilities, 0..1, independent for each packet
  double reorder = 0;    // held back by kReorderHold, so that later packets overtake
  double duplicate = 0;  // delivered twice
  bool operator==(const PathSpec&) const = default;
};

inline constexpr Time kReorderHold = std::chrono::milliseconds(5);

// The given keys; the others keep their values.
struct PathChange {
  std::optional<Time> delay, jitter;
  std::optional<double> loss, reorder, duplicate;
  void apply_to(PathSpec& path) const;
};

struct Cut {
  bool cut = true;                // false: heal
  std::optional<HostIndex> host;  // none: heal all cuts
  std::optional<HostIndex> peer;  // none: all traffic of the host
};
struct SetRate {
  HostIndex host = 0;
  Rate down, up;
};
struct SetPath {
  HostIndex from = 0, to = 0;
  bool both_ways = true;
  PathChange change;
};
using Change = std::variant<Cut, SetRate, SetPath>;

struct ScriptStep {
  Time at{};
  Change change;
  std::string text;  // the original text, for the log
};

// The host of this name. The error lists the hosts that exist.
[[nodiscard]] Result<HostIndex> find_host(std::string_view name, const std::vector<HostSpec>& hosts);
// `queue` applies if the text names none.
[[nodiscard]] Result<HostSpec> parse_host(std::string_view text, Time queue);
// The words after "cut", "rate", ...; hosts are looked up by name.
[[nodiscard]] Result<Change> parse_change(std::string_view text, const std::vector<HostSpec>& hosts);
// Steps in order of time. An error names the line: "faults.txt:3: ...".
[[nodiscard]] Result<std::vector<ScriptStep>> parse_script(std::string_view text, std::string_view name,
                                                           const std::vector<HostSpec>& hosts);

// A decimal number in [low, high]; the error names `what`.
[[nodiscard]] Result<double> parse_number(std::string_view text, std::string_view what, double low, double high);
[[nodiscard]] std::string to_string(const Rate& rate);  // "100", "unlimited"
[[nodiscard]] Time milliseconds(double count);

}  // namespace collab::lab
