// The norms that `rda` needs in one attempt: for each tensor, the norm of each site's delta and the norm of the mean.
//
// A slice's owner measures the norms while it reduces a chunk. It sends them after the payload of the chunk's mean.
// Contributors do not report their own norms, so all sites have the same numbers.
//
// A tensor that lies in one chunk has two numbers: the mean of the sites' norms, and the norm of the mean. A tensor
// that spans chunks has more numbers in each chunk: the square of each site's norm, in site order, and the square of
// the mean's norm. When all chunks are here, these squares are added in the vector's order.
//
// The owner measures what it averages: its own delta unencoded, and the deltas of others as decoded. So a codec that
// leaves out much does not lengthen the mean. The mean is measured before it is encoded.
//
// Threads: one caller at a time. Ownership: its numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "collab/status.h"
#include "collab/types.h"

namespace collab {

class RadialNorms {
 public:
  // `tensors`: ascending, without overlaps. Only the part of each that lies in `range` counts; `range` is what the
  // attempt averages. `shares`: each contributor's share of the mean, in site order.
  RadialNorms(std::span<const ElementRange> tensors, ElementRange range, std::vector<float> shares);

  // Bytes that follow the mean of this chunk.
  [[nodiscard]] std::size_t size(ElementRange chunk) const;

  // ---- at the chunk's owner
  // Appends the squares of one site's delta to `squares`. Call it once for each contributor, in site order.
  void measure(ElementRange chunk, std::span<const float> delta, std::vector<double>& squares) const;
  // `out` has size(chunk) bytes.
  void write(ElementRange chunk, std::span<const double> squares, std::span<const float> mean,
             std::span<std::byte> out) const;

  // ---- at every site
  // Refuses bytes of another length, and numbers that are no norms.
  Status take(ElementRange chunk, std::span<const std::byte> bytes);
  // The numbers of the chunk that begins there. It must have been taken.
  [[nodiscard]] std::span<const double> taken(std::uint64_t begin) const { return taken_.at(begin).numbers; }

  struct Factor {
    ElementRange range;
    float factor = 1;
  };
  // The factor of every tensor, ascending. Every chunk must have been taken.
  [[nodiscard]] std::vector<Factor> factors() const;

 private:
  struct OfChunk {
    ElementRange chunk;
    std::vector<double> numbers;
  };
  // Calls f(tensor, part) for each tensor that has a part in the chunk.
  template <typename F>
  void each_part(ElementRange chunk, F f) const;
  // `squares`: the square of each site's norm, in site order.
  [[nodiscard]] double mean_of_norms(std::span<const double> squares) const;

  std::vector<ElementRange> tensors_;
  std::vector<float> shares_;
  std::map<std::uint64_t, OfChunk> taken_;  // by the chunk's first element
};

// Multiplies the elements of `vector` in place. Its first element is number `begin`.
void multiply(std::span<const RadialNorms::Factor> factors, std::uint64_t begin, std::span<float> vector);
// The norm that the elements would have if they were multiplied.
[[nodiscard]] double norm_with(std::span<const RadialNorms::Factor> factors, std::uint64_t begin,
                               std::span<const float> vector);

}  // namespace collab
