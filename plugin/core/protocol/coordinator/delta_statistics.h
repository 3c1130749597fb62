// How similar the contributions to a round are, from a small sample of each delta. For reports only: nothing depends on
// it.
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
    std::span<const std::uint32_t> sampled_delta;  // the elements at sample_of(elements), as binary32
  };
  struct Found {
    // Root mean square of the deltas' distances from their mean, over the norm of the mean. It is 0 if all are equal,
    // and sqrt(k - 1) if k deltas of equal length are at right angles.
    std::optional<double> spread;
    // Between this mean and the previous one of the same elements. It is 1 if the swarm keeps its direction.
    std::optional<double> cosine;
  };
  // Computes the statistics of a committed round, over the sampled elements in `part`. `elements`: of the vector. The
  // result is empty if the samples are too few, of unlike lengths or not finite; one contribution has no spread.
  Found committed(std::span<const Contribution> contributions, std::uint64_t elements, ElementRange part);
  [[nodiscard]] const Found& last() const { return last_; }

 private:
  friend struct Inside;
  std::map<std::uint64_t, std::vector<double>> before_;  // the previous mean of each part, by its first element
  Found last_;
};

}  // namespace collab::protocol
