// The model's tensors as one vector of float32, in the order given: what a session reads and writes.
//
// The vector belongs to the tensors, not to their storage: `parameter.data = other` gives a parameter new storage, and
// the vector follows it. check() finds what it cannot follow. Call it before the vector is used again.
//
// Contiguous float32 on the host is handed out as it is. All else is converted, in row-major order of the logical
// elements, whatever the strides. Writing neither needs nor disturbs autograd: it records no graph and moves no version
// counter, as with the raw memory that a view() hands out.
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
  // Refuses tensors that are not dense or not floating, naming the position. `names` are for messages: one for each
  // tensor, or none.
  [[nodiscard]] static Result<std::shared_ptr<TensorVector>> make(std::vector<at::Tensor> tensors,
                                                                  std::vector<std::string> names = {});

  // Whether every tensor still has the shape and type it began with, wherever its storage is by now. Names the first
  // that has not. Costs some nanoseconds a tensor.
  [[nodiscard]] Status check();
  // Another object stands in a tensor's place from here on; refused when it differs in shape or type.
  Status replace(std::size_t position, at::Tensor tensor);

  [[nodiscard]] std::uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override;
  Status read(std::uint64_t offset, std::span<float> out) override;
  Status write(std::uint64_t offset, std::span<const float> in) override;
  Result<bool> holds(std::uint64_t offset, std::span<const float> values) override;
  // At the device that a tensor is on: half of the way of what is read, changed and written.
  Status add(std::uint64_t offset, std::span<const float> values) override;
  Status mix(std::uint64_t offset, std::span<const float> values, float kept) override;
  [[nodiscard]] std::uint64_t tile() const override;
  [[nodiscard]] std::shared_ptr<void> pin_memory(std::span<const float> memory) override;

 private:
  [[nodiscard]] at::Device farthest() const;  // the first that is not the host, if any tensor is there
  TensorVector(std::vector<at::Tensor> tensors, std::vector<std::string> names);
  [[nodiscard]] std::string name_of(std::size_t position) const;
  [[nodiscard]] Status check_kind(std::size_t position, const at::Tensor& tensor) const;
  // Calls piece(tensor, begin within it, count, position in the span) for every tensor the range touches.
  template <typename Piece>
  Status for_pieces(const char* what, std::uint64_t offset, std::uint64_t count, const Piece& piece);
  // there(elements, values) on a device, here(offset, values) on the host.
  template <typename There, typename Here>
  Status change(std::uint64_t offset, std::span<const float> values, const There& there, const Here& here);

  // What a tensor was when it came into the vector, and where its storage was seen last.
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
