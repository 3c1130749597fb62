// Whether two sites train on the same data: the cosine between what they learned, from a small sample of each delta.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/messages.h"

namespace collab::protocol {

inline constexpr double kAlike = 0.99;
inline constexpr std::uint32_t kAlikeRounds = 2;       // running
inline constexpr std::size_t kLeastSampledDelta = 32;  // elements that are not zero; of fewer nothing is concluded

// The elements of a vector that a sampled delta holds: at most wire::kMaxSampledDelta, evenly spread.
[[nodiscard]] std::vector<std::uint64_t> sample_of(std::uint64_t elements);

class DuplicateData {
 public:
  struct Pair {
    SiteId a, b;
    double cosine = 0;
  };
  // The contributions to a round that is committed. Gives the pairs above kAlike for the kAlikeRounds-th round in a
  // row.
  std::vector<Pair> committed(const std::map<SiteId, std::span<const std::uint32_t>>& sampled_deltas);

 private:
  friend struct Inside;
  std::map<std::pair<SiteId, SiteId>, std::uint32_t> alike_;  // rounds running
};

}  // namespace collab::protocol
