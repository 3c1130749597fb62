#include "core/protocol/coordinator/delta_statistics.h"

#include <bit>
#include <cmath>
#include <utility>

#include "core/protocol/coordinator/duplicate_data.h"

namespace collab::protocol {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm(const std::vector<double>& a) { return std::sqrt(dot(a, a)); }

}  // namespace

DeltaStatistics::Found DeltaStatistics::committed(std::span<const Contribution> contributions, std::uint64_t elements,
                                                  ElementRange part) {
  last_ = {};
  const std::vector<std::uint64_t> places = sample_of(elements);
  std::vector<std::vector<double>> deltas;
  double weights = 0;
  for (const Contribution& contribution : contributions) {
    if (contribution.sampled_delta.size() != places.size()) return last_;
    std::vector<double>& delta = deltas.emplace_back();
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i] < part.begin || places[i] >= part.end) continue;
      delta.push_back(std::bit_cast<float>(contribution.sampled_delta[i]));
    }
    weights += contribution.weight;
  }
  if (deltas.empty() || deltas[0].size() < kLeastSampledDelta) return last_;
  std::vector<double> mean(deltas[0].size());
  for (std::size_t of = 0; of < deltas.size(); ++of) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += contributions[of].weight / weights * deltas[of][i];
  }
  double square = 0;
  for (std::size_t of = 0; of < deltas.size(); ++of) {
    for (std::size_t i = 0; i < mean.size(); ++i) deltas[of][i] -= mean[i];
    square += contributions[of].weight / weights * dot(deltas[of], deltas[of]);
  }
  const auto found = [](double value) { return std::isfinite(value) ? std::optional(value) : std::nullopt; };
  if (deltas.size() > 1) last_.spread = found(std::sqrt(square) / norm(mean));
  std::vector<double>& before = before_[part.begin];
  if (before.size() == mean.size()) last_.cosine = found(dot(mean, before) / (norm(mean) * norm(before)));
  before = std::move(mean);
  return last_;
}

}  // namespace collab::protocol
