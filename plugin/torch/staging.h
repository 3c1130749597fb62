// Tensors on an accelerator, seen by Gloo as host memory: copied out when a collective is issued, copied back when
// it is done. Host tensors pass through untouched.
//
// The copies block, on the stream that is current where the collective is issued, so the collective sees what was
// computed before it. The copy back runs on the thread that finishes the collective and blocks, too.
// Threads: one at a time. Ownership: holds the device tensors until the copy back.
#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace collab::torch_adapter {

// The parts of `flat` go where they came from (or to tensors of the same sizes).
inline void copy_out(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor piece = flat.narrow(0, offset, tensor.numel()).view(tensor.sizes());
    if (piece.data_ptr() != tensor.data_ptr()) at::Tensor(tensor).copy_(piece);
    offset += tensor.numel();
  }
}

class Staging {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  [[nodiscard]] at::Tensor input(const at::Tensor& tensor) {
    if (tensor.device().is_cpu()) return tensor;
    used_ = true;
    return tensor.cpu();
  }
  [[nodiscard]] at::Tensor output(const at::Tensor& tensor) {
    at::Tensor host = input(tensor);
    if (!tensor.device().is_cpu()) back_.emplace_back(tensor, host);
    return host;
  }
  [[nodiscard]] Tensors inputs(const Tensors& tensors) {
    Tensors host;
    for (const at::Tensor& tensor : tensors) host.push_back(input(tensor));
    return host;
  }
  [[nodiscard]] Tensors outputs(const Tensors& tensors) {
    Tensors host;
    for (const at::Tensor& tensor : tensors) host.push_back(output(tensor));
    return host;
  }
  [[nodiscard]] TensorLists inputs(const TensorLists& lists) {
    TensorLists host;
    for (const Tensors& list : lists) host.push_back(inputs(list));
    return host;
  }
  [[nodiscard]] TensorLists outputs(const TensorLists& lists) {
    TensorLists host;
    for (const Tensors& list : lists) host.push_back(outputs(list));
    return host;
  }

  [[nodiscard]] bool used() const { return used_; }
  void copy_back() {
    for (auto& [device, host] : back_) device.copy_(host);
  }

 private:
  bool used_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;
};

}  // namespace collab::torch_adapter
