#include "core/outer/outer.h"

#include <cstddef>

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

}  // namespace

bool has_outer_state(OuterId id) {
  switch (id) {
    case OuterId::kAverage: return false;
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
    case OuterId::kAverage: average(config.lr, anchor.size(), anchor.data(), mean_then_anchor.data()); return;
    case OuterId::kNesterov:
      nesterov(config.lr, config.momentum, anchor.size(), anchor.data(), mean_then_anchor.data(), outer.data());
      return;
  }
}

}  // namespace collab
