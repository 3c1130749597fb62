// The lab's command line: hosts, paths, script, and the command that runs in every site.
//
// Threads: plain values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/lab/network.h"

namespace collab::lab {

inline constexpr std::size_t kMaxHosts = 64;

struct Options {
  NetworkSpec network;
  std::vector<Change> links;  // applied before the script begins
  std::string script_file;    // empty: none
  std::vector<std::pair<std::string, std::string>> environment;
  unsigned mtu = 1500;
  std::string report_file;   // JSON; empty: none
  std::string capture_file;  // pcap; empty: none
  bool quiet = false;
  bool check = false;  // only report whether the lab can run here
  bool help = false;
  std::vector<std::string> command;
};

// `arguments` excludes the program's name. The error says what was expected and what was given.
[[nodiscard]] Result<Options> parse_options(const std::vector<std::string_view>& arguments);

// The text with {site}, {index}, {address}, {address:NAME} and {count} replaced as host `index` sees them; other braces
// stay.
[[nodiscard]] std::string substitute(std::string_view text, const NetworkSpec& network, HostIndex index);

[[nodiscard]] std::string_view help_text();

}  // namespace collab::lab
