// How many samples each site has contributed to the rounds that this coordinator has seen committed. It decides
// nothing.
//
// By name: a site that comes back under its name goes on. Above kMaxNames the name with the fewest is dropped.
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
  // Those with most first, of equals by name.
  [[nodiscard]] std::vector<Contributed> top(std::size_t count) const;

 private:
  std::map<std::string, Contributed> by_name_;
};

}  // namespace collab::protocol
