// The model's tensors as one vector of float32, in the order given: what a session reads and writes.
//
// Contiguous float32 on the host is handed out as it lies; everything else is converted, in row-major order of the
// logical elements whatever the strides. Writing neither needs nor disturbs autograd: no graph is recorded and no
// version counter moves, as with the raw memory that a view() hands out.
//
// Threads: one at a time, without the interpreter's lock. Ownership: keeps the tensors alive.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "collab/session.h"

namespace collab::torch_adapter {

class TensorVector final : public ParameterVector {
 public:
  // Refuses tensors that are not dense or not floating, naming the position.
  [[nodiscard]] static Result<std::shared_ptr<TensorVector>> make(std::vector<at::Tensor> tensors);

  [[nodiscard]] std::uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override;
  Status read(std::uint64_t offset, std::span<float> out) override;
  Status write(std::uint64_t offset, std::span<const float> in) override;

 private:
  explicit TensorVector(std::vector<at::Tensor> tensors);
  // Calls piece(tensor, begin within it, count, position in the span) for every tensor the range touches.
  template <typename Piece>
  Status for_pieces(const char* what, std::uint64_t offset, std::uint64_t count, const Piece& piece);

  std::vector<at::Tensor> tensors_;
  std::vector<std::uint64_t> ends_;  // of each tensor in the vector
};

}  // namespace collab::torch_adapter
