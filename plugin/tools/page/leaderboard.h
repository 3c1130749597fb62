// How much each site has contributed: what a coordinator counts, and what earlier ones counted, if a file keeps it.
//
// Counted by name: a site that is renamed begins another line. If there are more than kMaxNames names, the smallest go.
// Threads: one caller at a time. Ownership: the file is one coordinator's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collab/status.h"
#include "collab/swarm_status.h"

namespace collab::page {

class Leaderboard {
 public:
  static constexpr std::size_t kMaxNames = 1000;

  // An empty path: nothing is kept. A file that is not one of these is refused, and left as it is.
  static Result<Leaderboard> open(const std::string& path);

  [[nodiscard]] bool is_kept() const { return !path_.empty(); }
  // What this coordinator has counted so far; the largest come first.
  [[nodiscard]] const std::vector<Contributed>& with(const std::vector<Contributed>& counted);
  // If it has changed since. The file has the old content or the new one, whatever happens.
  Status save();

 private:
  std::string path_;
  std::map<std::string, Contributed> before_;
  std::vector<Contributed> counted_, all_;
  bool changed_ = false;
};

}  // namespace collab::page
