// The norms of one attempt that `rda` goes by: of each tensor as each site's delta of it is averaged, and of the mean.
//
// A slice's owner measures them while it reduces a chunk, and they follow the payload of the chunk's mean: whoever
// contributes says nothing of its own norm, and all sites have the same numbers. Of a tensor that lies in one chunk
// there are two, the mean of the sites' norms and the norm of their mean; of a part of a tensor the square of each
// site's norm, in site order, and that of the mean's. When all are here, the parts of a tensor are added in the
// vector's order. What is measured is what is averaged: an owner's own delta as it is, of others what was decoded. So a
// codec that leaves out much lengthens nothing. The mean is measured before it is encoded. Threads: one caller at a
// time. Ownership: its numbers.
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
  // `tensors`: ascending, apart; what of them is in `range`, all that the attempt averages, is a tensor here. `shares`:
  // of the mean, of those who contribute, in site order.
  RadialNorms(std::span<const ElementRange> tensors, ElementRange range, std::vector<float> shares);

  // Bytes that follow the mean of this chunk.
  [[nodiscard]] std::size_t size(ElementRange chunk) const;

  // ---- at the chunk's owner
  // Adds what one site contributes to `squares`: for each of them once, in site order.
  void measure(ElementRange chunk, std::span<const float> delta, std::vector<double>& squares) const;
  // `out` has size(chunk) bytes.
  void write(ElementRange chunk, std::span<const double> squares, std::span<const float> mean,
             std::span<std::byte> out) const;

  // ---- at all
  // Refuses another length, and what is no norm.
  Status take(ElementRange chunk, std::span<const std::byte> bytes);
  // Of the chunk that begins there, which was taken.
  [[nodiscard]] std::span<const double> taken(std::uint64_t begin) const { return taken_.at(begin).numbers; }

  struct Factor {
    ElementRange range;
    float factor = 1;
  };
  // Of every tensor, ascending; every chunk was taken.
  [[nodiscard]] std::vector<Factor> factors() const;

 private:
  struct OfChunk {
    ElementRange chunk;
    std::vector<double> numbers;
  };
  // f(tensor, part) for each tensor that has a part in the chunk.
  template <typename F>
  void each_part(ElementRange chunk, F f) const;
  // From each site's square, in site order.
  [[nodiscard]] double mean_of_norms(std::span<const double> squares) const;

  std::vector<ElementRange> tensors_;
  std::vector<float> shares_;
  std::map<std::uint64_t, OfChunk> taken_;  // by the chunk's first element
};

// The elements from `begin` on, in place.
void multiply(std::span<const RadialNorms::Factor> factors, std::uint64_t begin, std::span<float> vector);
// Their norm, were they multiplied.
[[nodiscard]] double norm_with(std::span<const RadialNorms::Factor> factors, std::uint64_t begin,
                               std::span<const float> vector);

}  // namespace collab
