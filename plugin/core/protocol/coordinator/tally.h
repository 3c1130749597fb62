// How many samples each site has contributed to the rounds that this coordinator has seen committed. For reports only.
//
// Counted by name: a site that comes back continues its count. Above kMaxNames the lowest count is dropped.
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collab/swarm_status.h"

namespace collab::protocol {

class Tally {
 public:
  static constexpr std::size_t kMaxNames = 4096;

  void add(const std::string& name, std::uint64_t samples);
  // Most samples first; equal ones by name.
  [[nodiscard]] std::vector<Contributed> top(std::size_t count) const;

 private:
  std::map<std::string, Contributed> by_name_;
};

}  // namespace collab::protocol
