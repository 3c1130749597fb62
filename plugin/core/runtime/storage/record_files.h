// The records in a folder, for `collab doctor`: which sites they belong to, and removal of those that no site needs.
//
// Threads: plain functions on paths. Ownership: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "collab/status.h"

namespace collab {

struct RecordFile {
  std::string path;
  std::uint64_t bytes = 0;     // with records that were moved aside
  std::chrono::seconds age{};  // since it was written last
  std::string holder;          // "process 4711 on host node7"; empty: no process has it
};
[[nodiscard]] std::vector<RecordFile> find_records(const std::string& folder);
// Also removes records that were moved aside, and the lock's file. kRefused: a process has it, or it is younger than
// `least`.
Status remove_record(const std::string& path, std::chrono::seconds least);

}  // namespace collab
