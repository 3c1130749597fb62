#include "core/outer/outer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "collab/status.h"
#include "core/base/float_environment.h"

namespace collab {
namespace {

// Every operation is rounded to float32 on its own, in the order written here. With lr 1 the product is g itself.
void average(float lr, std::size_t n, const float* anchor, float* mean_then_anchor) {
  for (std::size_t i = 0; i < n; ++i) mean_then_anchor[i] = anchor[i] - lr * mean_then_anchor[i];
}

void nesterov(float lr, float momentum, std::size_t n, const float* anchor, float* mean_then_anchor, float* outer) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = mean_then_anchor[i];
    const float m = momentum * outer[i] + g;
    outer[i] = m;
    mean_then_anchor[i] = anchor[i] - lr * (g + momentum * m);
  }
}

// For x >= 1: exact at powers of two, and linear between them. libm's result differs between machines.
double log2_of(double x) {
  double exponent = 0;
  while (x >= 2) {
    x /= 2;
    ++exponent;
  }
  return exponent + (x - 1);
}

}  // namespace

float auto_outer_lr(std::size_t contributors, std::uint64_t period) {
  constexpr std::array<double, 4> kOfSites{0.4, 0.6, 0.6, 0.8};  // of 1, 2, 4, 8
  constexpr double kOfPeriod = 0.05;
  const FloatEnvironment ieee;
  const double at = std::min(log2_of(static_cast<double>(std::max<std::size_t>(1, contributors))), 3.0);
  const auto below = static_cast<std::size_t>(at);
  const double above = kOfSites[std::min<std::size_t>(below + 1, 3)];
  double lr = kOfSites[below] + (at - static_cast<double>(below)) * (above - kOfSites[below]);
  if (period > kReferencePeriod) {
    lr += kOfPeriod * log2_of(static_cast<double>(period) / static_cast<double>(kReferencePeriod));
  }
  return static_cast<float>(std::min(1.0, std::floor(lr * 100 + 0.5) / 100));
}

OuterConfig for_contributors(const OuterConfig& config, std::size_t contributors) {
  OuterConfig agreed = config;
  if (config.lr == 0) {
    agreed.lr = config.id == OuterId::kNesterov ? auto_outer_lr(contributors, config.period) : 1.0F;
  }
  if (config.id == OuterId::kRda && contributors < 2) agreed.id = OuterId::kAverage;
  return agreed;
}

double square_of(std::span<const float> vector) {
  constexpr std::size_t kLanes = 8;
  const FloatEnvironment ieee;
  std::array<double, kLanes> sums{};
  const std::size_t whole = vector.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto each = static_cast<double>(vector[i + lane]);
      sums[lane] += each * each;
    }
  }
  for (std::size_t i = whole; i < vector.size(); ++i) {
    const auto each = static_cast<double>(vector[i]);
    sums[i - whole] += each * each;
  }
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

double norm_of(std::span<const float> vector) {
  const FloatEnvironment ieee;
  return std::sqrt(square_of(vector));
}

float clip_factor(float clip, double norm) {
  const FloatEnvironment ieee;
  const auto most = static_cast<double>(clip);
  return clip > 0 && norm > most ? static_cast<float>(most / norm) : 1.0F;
}

float radial_factor(double mean_of_norms, double norm_of_mean, std::size_t contributors) {
  const FloatEnvironment ieee;
  const double ratio = mean_of_norms / norm_of_mean;
  return ratio > 1 ? static_cast<float>(std::min(ratio, std::sqrt(static_cast<double>(contributors)))) : 1.0F;
}

void multiply(std::span<float> vector, float factor) {
  const FloatEnvironment ieee;
  for (float& each : vector) each *= factor;
}

bool has_outer_state(OuterId id) {
  switch (id) {
    case OuterId::kAverage:
    case OuterId::kRda: return false;
    case OuterId::kNesterov: return true;
  }
  panic("no outer optimizer with this number", __FILE__, __LINE__);
}

void outer_step(const OuterConfig& config, std::span<const float> anchor, std::span<float> mean_then_anchor,
                std::span<float> outer) {
  COLLAB_CHECK(anchor.size() == mean_then_anchor.size(), "outer_step() takes an anchor and a mean of one length");
  COLLAB_CHECK(outer.size() == (has_outer_state(config.id) ? anchor.size() : 0),
               "outer_step() takes the outer state of the optimizer, empty when it has none");
  const FloatEnvironment ieee;
  switch (config.id) {
    case OuterId::kAverage:
    case OuterId::kRda: average(config.lr, anchor.size(), anchor.data(), mean_then_anchor.data()); return;
    case OuterId::kNesterov:
      nesterov(config.lr, config.momentum, anchor.size(), anchor.data(), mean_then_anchor.data(), outer.data());
      return;
  }
}

}  // namespace collab
