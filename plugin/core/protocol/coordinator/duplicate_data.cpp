#include "core/protocol/coordinator/duplicate_data.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

// Up to this many sites, every pair is compared. In larger swarms only sites with close sums are, because equal deltas
// have nearly equal sums.
constexpr std::size_t kEveryPair = 32;
constexpr std::size_t kNeighbours = 8;

struct Direction {
  SiteId site;
  std::vector<double> unit;
  double sum = 0;
};

// Empty if there is too little data for a conclusion.
std::vector<double> unit_of(std::span<const std::uint32_t> sampled_delta) {
  std::vector<double> unit;
  double square = 0;
  std::size_t present = 0;
  for (const std::uint32_t bits : sampled_delta) {
    const double element = std::bit_cast<float>(bits);
    if (!std::isfinite(element)) return {};
    unit.push_back(element);
    square += element * element;
    present += element != 0 ? 1 : 0;
  }
  if (present < kLeastSampledDelta) return {};
  for (double& element : unit) element /= std::sqrt(square);
  return unit;
}

}  // namespace

std::vector<std::uint64_t> sample_of(std::uint64_t elements) {
  const std::uint64_t count = std::min<std::uint64_t>(elements, wire::kMaxSampledDelta);
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = 0; i < count; ++i) places.push_back(i * elements / count);
  return places;
}

std::vector<DuplicateData::Pair> DuplicateData::committed(
    const std::map<SiteId, std::span<const std::uint32_t>>& sampled_deltas) {
  std::vector<Direction> directions;
  for (const auto& [site, sampled_delta] : sampled_deltas) {
    Direction direction{site, unit_of(sampled_delta)};
    if (direction.unit.empty()) continue;
    for (const double element : direction.unit) direction.sum += element;
    directions.push_back(std::move(direction));
  }
  std::ranges::sort(directions, {}, &Direction::sum);
  const std::size_t reach = directions.size() <= kEveryPair ? kEveryPair : kNeighbours;
  std::map<std::pair<SiteId, SiteId>, std::uint32_t> alike;
  std::vector<Pair> found;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    for (std::size_t j = i + 1; j < std::min(directions.size(), i + 1 + reach); ++j) {
      const auto& [a, ours, sum_a] = directions[i];
      const auto& [b, theirs, sum_b] = directions[j];
      if (ours.size() != theirs.size()) continue;
      double cosine = 0;
      for (std::size_t k = 0; k < ours.size(); ++k) cosine += ours[k] * theirs[k];
      if (!(cosine > kAlike)) continue;
      const std::pair<SiteId, SiteId> pair = std::minmax(a, b);
      const auto before = alike_.find(pair);
      const std::uint32_t rounds = alike[pair] = 1 + (before == alike_.end() ? 0 : before->second);
      if (rounds == kAlikeRounds) found.push_back({pair.first, pair.second, std::min(cosine, 1.0)});
    }
  }
  alike_ = std::move(alike);
  return found;
}

}  // namespace collab::protocol
