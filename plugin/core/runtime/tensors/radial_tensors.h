// Which tensors `rda` lengthens one by one (COLLAB_OUTER_OPTIMIZER): all trained tensors except embeddings. A site has
// moved only the rows of an embedding that it read, so the mean of embeddings is used as it is.
//
// Embeddings are recognised by their names, because names are what sites compare and helpers are told. The name
// contains `embed`, in any case, or one of the words between its dots and underscores is `emb`, `wte` or `wpe`.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collab/session.h"
#include "collab/types.h"

namespace collab {

[[nodiscard]] bool is_embedding(std::string_view name);
// Ascending, apart. `model` has the tensors in the order of the vector of so many elements; elements from
// `buffers_from` on are buffers.
[[nodiscard]] std::vector<ElementRange> radial_tensors(std::span<const TensorInfo> model, std::uint64_t elements,
                                                       std::uint64_t buffers_from);

}  // namespace collab
