// How much each site has contributed, as counted by this coordinator and, if a file keeps the counts, by earlier ones.
//
// Counted by name: a renamed site starts a new line. If there are more than kMaxNames names, the smallest are dropped.
// Threads: one caller at a time. Ownership: only one coordinator uses the file.
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

  // An empty path: no file. Refuses a file in another format, and leaves it unchanged.
  static Result<Leaderboard> open(const std::string& path);

  [[nodiscard]] bool is_kept() const { return !path_.empty(); }
  // Adds what this coordinator has counted so far; the largest come first.
  [[nodiscard]] const std::vector<Contributed>& with(const std::vector<Contributed>& counted);
  // Writes the file if the counts have changed. After a failure the file has either the old or the new content.
  Status save();

 private:
  std::string path_;
  std::map<std::string, Contributed> before_;
  std::vector<Contributed> counted_, all_;
  bool changed_ = false;
};

}  // namespace collab::page
