// How similar the contributions to a round are, from a small sample of each delta. For readers only: nothing is decided
// by it.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "collab/types.h"
#include "core/wire/messages.h"

namespace collab::protocol {

class DeltaStatistics {
 public:
  struct Contribution {
    double weight = 0;
    std::span<const std::uint32_t> sampled_delta;  // as binary32, of sample_of(elements)
  };
  struct Found {
    // Root mean square of what the deltas differ from their mean by, over the norm of the mean: 0 where all are equal,
    // sqrt(k - 1) where k of equal length are at right angles.
    std::optional<double> spread;
    // Between this mean and the one before it of the same elements: 1 where the swarm goes on in one direction.
    std::optional<double> cosine;
  };
  // Computes the statistics of a committed round, over the sampled elements in `part` of a vector of so many. The
  // result is empty if the samples are too few, of unlike lengths or not finite; one contribution has no spread.
  Found committed(std::span<const Contribution> contributions, std::uint64_t elements, ElementRange part);
  [[nodiscard]] const Found& last() const { return last_; }

 private:
  friend struct Inside;
  std::map<std::uint64_t, std::vector<double>> before_;  // the last mean, by the first element of its part
  Found last_;
};

}  // namespace collab::protocol
