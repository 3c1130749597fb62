#include "core/runtime/tensors/not_finite.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/digest.h"
#include "core/base/text.h"
#include "core/runtime/tensors/tensor_elements.h"

namespace collab {
namespace {

[[nodiscard]] std::string value_text(float value) {
  return std::isnan(value) ? "NaN" : value < 0 ? "-infinity" : "infinity";
}

// "buffer "attn.mask" (element 1 of float32 [4, 4])"
[[nodiscard]] std::string place_text(std::uint64_t element, std::span<const TensorInfo> model, bool buffer) {
  const std::string what = buffer ? "buffer " : "parameter ";
  std::uint64_t begin = 0;
  for (const TensorInfo& tensor : model) {
    if (tensor.kind != TensorKind::kAveraged) continue;
    const std::uint64_t end = begin + elements_of(tensor);
    if (element >= end) {
      begin = end;
      continue;
    }
    std::string shape;
    for (const std::uint64_t extent : tensor.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    return what + json_quote(tensor.name) + " (element " + std::to_string(element - begin) + " of " + tensor.dtype +
           " [" + shape + "])";
  }
  return what + "element " + std::to_string(element) + " of the vector";
}

[[nodiscard]] std::string text_of(std::uint64_t element, float parameter, float anchor,
                                  std::span<const TensorInfo> model, bool buffer) {
  const std::string place = place_text(element, model, buffer);
  const std::string remedy =
      buffer ? "set COLLAB_BUFFERS=0 at all sites, or make it no part of the average: register_buffer(..., "
               "persistent=False)"
             : "training has diverged there: look at the learning rate, the data and the scale of the loss";
  if (!std::isfinite(parameter)) return value_text(parameter) + " in " + place + ": " + remedy;
  if (!std::isfinite(anchor)) {
    return value_text(anchor) + " in the anchor's " + place +
           ": the model that training began with was not finite; start again with one that is";
  }
  return "the change of " + place + " since the last round is beyond float32: " + remedy;
}

}  // namespace

std::string not_finite_text(ParameterVector& parameters, std::span<const float> anchor,
                            std::span<const TensorInfo> model, std::uint64_t buffers_from) {
  std::vector<float> tile;
  for (std::uint64_t at = 0; at < anchor.size(); at += kDigestChunkElements) {
    const std::uint64_t count = std::min<std::uint64_t>(kDigestChunkElements, anchor.size() - at);
    tile.resize(count);
    if (const Status read = parameters.read(at, tile); !read.ok()) {
      return "the parameters could not be read: " + read.message();
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (std::isfinite(anchor[at + i] - tile[i])) continue;
      return text_of(at + i, tile[i], anchor[at + i], model, at + i >= buffers_from);
    }
  }
  return {};
}

}  // namespace collab
