#include "core/runtime/tensors/radial_tensors.h"

#include <algorithm>
#include <string>

#include "core/runtime/tensors/tensor_elements.h"

namespace collab {

bool is_embedding(std::string_view name) {
  std::string lower(name);
  for (char& each : lower) each = each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
  if (lower.find("embed") != std::string::npos) return true;
  for (std::size_t begin = 0; begin <= lower.size();) {
    const std::size_t end = std::min(lower.find_first_of("._", begin), lower.size());
    const std::string_view word = std::string_view(lower).substr(begin, end - begin);
    if (word == "emb" || word == "wte" || word == "wpe") return true;
    begin = end + 1;
  }
  return false;
}

std::vector<ElementRange> radial_tensors(std::span<const TensorInfo> model, std::uint64_t elements,
                                         std::uint64_t buffers_from) {
  std::vector<ElementRange> tensors;
  const std::uint64_t trained = std::min(elements, buffers_from);
  std::uint64_t begin = 0;
  for (const TensorInfo& tensor : model) {
    if (tensor.kind != TensorKind::kAveraged) continue;
    const ElementRange range{begin, std::min(trained, begin + elements_of(tensor))};
    if (range.end <= range.begin) continue;
    begin = range.end;
    if (!is_embedding(tensor.name)) tensors.push_back(range);
  }
  return tensors;
}

}  // namespace collab
