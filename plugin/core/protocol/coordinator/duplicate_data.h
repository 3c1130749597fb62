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
inline constexpr std::uint32_t kAlikeRounds = 2;       // in a row
inline constexpr std::size_t kLeastSampledDelta = 32;  // nonzero elements; fewer allow no conclusion

// The elements of a vector that a sampled delta holds: at most wire::kMaxSampledDelta, evenly spread.
[[nodiscard]] std::vector<std::uint64_t> sample_of(std::uint64_t elements);

class DuplicateData {
 public:
  struct Pair {
    SiteId a, b;
    double cosine = 0;
  };
  // Takes the contributions to a committed round. Returns the pairs above kAlike for the kAlikeRounds-th round in a
  // row.
  std::vector<Pair> committed(const std::map<SiteId, std::span<const std::uint32_t>>& sampled_deltas);

 private:
  friend struct Inside;
  std::map<std::pair<SiteId, SiteId>, std::uint32_t> alike_;  // rounds in a row
};

}  // namespace collab::protocol
