// The model's tensors as one vector of float32, in the given order, which a session reads and writes.
//
// The vector refers to the tensors, not to their storage: `parameter.data = other` gives a parameter new storage, and
// the vector follows. check() detects changes that it cannot follow. Call check() before using the vector again.
//
// Contiguous float32 on the host is handed out without a copy. Other tensors are converted, in row-major order of the
// logical elements, whatever the strides. Writes bypass autograd: they record no graph and move no version counter, as
// with the raw memory that view() hands out.
//
// Threads: one at a time, without the interpreter's lock. Ownership: keeps the tensors alive.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "collab/session.h"
#include "torch/device_stage.h"

namespace collab::torch_adapter {

class TensorVector final : public ParameterVector {
 public:
  // Refuses tensors that are not dense or not floating, and names the position. `names` are for messages: one per
  // tensor, or none.
  [[nodiscard]] static Result<std::shared_ptr<TensorVector>> make(std::vector<at::Tensor> tensors,
                                                                  std::vector<std::string> names = {});

  // Checks that every tensor still has its original shape and type, wherever its storage is by now. Names the first
  // that has not. Costs some nanoseconds per tensor.
  [[nodiscard]] Status check();
  // Replaces a tensor by another object. Refuses one that differs in shape or type.
  Status replace(std::size_t position, at::Tensor tensor);

  [[nodiscard]] std::uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override;
  Status read(std::uint64_t offset, std::span<float> out) override;
  Status write(std::uint64_t offset, std::span<const float> in) override;
  Result<bool> holds(std::uint64_t offset, std::span<const float> values) override;
  // Computed on the tensor's device, so that only the values cross the bus: half the traffic of read(), change,
  // write().
  Status add(std::uint64_t offset, std::span<const float> values) override;
  Status mix(std::uint64_t offset, std::span<const float> values, float kept) override;
  [[nodiscard]] std::uint64_t tile() const override;
  [[nodiscard]] std::shared_ptr<void> pin_memory(std::span<const float> memory) override;

 private:
  [[nodiscard]] at::Device farthest() const;  // the first tensor's device that is not the host, or the host
  TensorVector(std::vector<at::Tensor> tensors, std::vector<std::string> names);
  [[nodiscard]] std::string name_of(std::size_t position) const;
  [[nodiscard]] Status check_kind(std::size_t position, const at::Tensor& tensor) const;
  // Calls piece(tensor, begin in the tensor, count, position in the span) for every tensor that the range touches.
  template <typename Piece>
  Status for_pieces(const char* what, std::uint64_t offset, std::uint64_t count, const Piece& piece);
  // Calls there(elements, values) for tensors on a device, and here(offset, values) for those on the host.
  template <typename There, typename Here>
  Status change(std::uint64_t offset, std::span<const float> values, const There& there, const Here& here);

  // A tensor's shape and type when it was added, and where its storage was last seen.
  struct Seen {
    const void* storage = nullptr;
    at::ScalarType type = at::kFloat;
    std::vector<int64_t> shape;
  };

  std::vector<at::Tensor> tensors_;
  std::vector<std::string> names_;
  std::vector<Seen> seen_;
  std::vector<std::uint64_t> ends_;  // of each tensor in the vector
  DeviceStage stage_;
};

}  // namespace collab::torch_adapter
