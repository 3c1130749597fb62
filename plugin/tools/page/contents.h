// The content of the page, from a coordinator's report: as JSON, and in Prometheus' text format.
//
// Threads: pure functions. Names and texts come from members: each format escapes them in its own way.
#pragma once

#include <string>
#include <vector>

#include "collab/swarm_status.h"

namespace collab::page {

struct Constants {
  std::string objective;  // in the operator's words; may be empty
  std::string join;       // the command
};

[[nodiscard]] std::string status_text(const Constants& constants, const CoordinatorReport& report,
                                      const std::vector<Contributed>& leaderboard, double now);
[[nodiscard]] std::string metrics_text(const CoordinatorReport& report, const std::vector<Contributed>& leaderboard);

// `key`: whether a site needs COLLAB_TOKEN_FILE, COLLAB_TLS_* or neither.
enum class Key : unsigned char { kNone, kToken, kCertificates };
[[nodiscard]] std::string join_command(const std::string& coordinator, const std::string& run, Key key);

}  // namespace collab::page
