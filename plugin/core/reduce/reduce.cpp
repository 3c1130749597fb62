#include "core/reduce/reduce.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "collab/status.h"
#include "core/base/float_environment.h"

namespace collab {

std::vector<float> mean_scales(std::span<const double> weights) {
  const FloatEnvironment ieee;
  double sum = 0;
  for (const double weight : weights) {
    COLLAB_CHECK(std::isfinite(weight) && weight >= 0, "a contribution's weight must be finite and not negative");
    sum += weight;
  }
  COLLAB_CHECK(std::isfinite(sum) && sum > 0, "the weights of a mean must have a positive, finite sum");
  std::vector<float> scales;
  scales.reserve(weights.size());
  for (const double weight : weights) scales.push_back(static_cast<float>(weight / sum));
  return scales;
}

bool accumulate_difference(std::span<const float> a, std::span<const float> b, float scale, bool first,
                           std::span<float> acc) {
  COLLAB_CHECK(a.size() == b.size() && a.size() == acc.size(), "accumulate_difference() takes vectors of one length");
  const FloatEnvironment ieee;
  const float* from = a.data();
  const float* minus = b.data();
  float* to = acc.data();
  // The largest magnitude as bits: NaN and infinity are above every finite number.
  std::int32_t largest = 0;
  const auto note = [&largest](float difference) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(difference) & 0x7FFF'FFFF;
    largest = largest > magnitude ? largest : magnitude;
  };
  if (first) {
    for (std::size_t i = 0; i < acc.size(); ++i) {
      const float difference = from[i] - minus[i];
      note(difference);
      to[i] = scale * difference;
    }
  } else {
    for (std::size_t i = 0; i < acc.size(); ++i) {
      const float difference = from[i] - minus[i];
      note(difference);
      to[i] = to[i] + scale * difference;
    }
  }
  return largest < 0x7F80'0000;
}

}  // namespace collab
