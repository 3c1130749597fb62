// Presents tensors on an accelerator to Gloo as host memory: copies them out when a collective is issued, and back when
// it is done. Host tensors pass through untouched.
//
// The copies out block, on the stream that is current at the issue of the collective. So the collective sees all
// earlier results. Memory that it only writes is not copied out, but the call waits for that stream, which may still
// read there. The copy back runs on the thread that finishes the collective, and blocks too. Threads: one at a time.
// Ownership: holds the device tensors until the copy back.
#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "torch/device.h"

namespace collab::torch_adapter {

// Copies the parts of `flat` to `tensors`, which have the parts' sizes.
inline void copy_out(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor piece = flat.narrow(0, offset, tensor.numel()).view(tensor.sizes());
    if (piece.data_ptr() != tensor.data_ptr()) at::Tensor(tensor).copy_(piece);
    offset += tensor.numel();
  }
  for (const at::Tensor& tensor : tensors) wait_for_stream(tensor.device());  // with strides, copy_() does not wait
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
  // For tensors that the collective writes completely and never reads.
  [[nodiscard]] at::Tensor output(const at::Tensor& tensor) {
    if (tensor.device().is_cpu()) return tensor;
    wait_for_stream(tensor.device());
    return stage_copy_back(tensor, at::empty_like(tensor, tensor.options().device(at::kCPU)));
  }
  // For tensors that the collective reads, and writes on some rank.
  [[nodiscard]] at::Tensor in_place(const at::Tensor& tensor) {
    return tensor.device().is_cpu() ? tensor : stage_copy_back(tensor, tensor.cpu());
  }
  [[nodiscard]] Tensors inputs(const Tensors& tensors) { return each(tensors, &Staging::input); }
  [[nodiscard]] Tensors outputs(const Tensors& tensors) { return each(tensors, &Staging::output); }
  [[nodiscard]] Tensors in_place(const Tensors& tensors) { return each(tensors, &Staging::in_place); }
  [[nodiscard]] TensorLists inputs(const TensorLists& lists) { return each(lists, &Staging::inputs); }
  [[nodiscard]] TensorLists outputs(const TensorLists& lists) { return each(lists, &Staging::outputs); }

  [[nodiscard]] bool used() const { return used_; }
  void copy_back() {
    for (auto& [device, host] : back_) device.copy_(host);
    for (auto& [device, host] : back_) wait_for_stream(device.device());  // as in copy_out()
  }

 private:
  template <typename Of>
  std::vector<Of> each(const std::vector<Of>& all, Of (Staging::*stage)(const Of&)) {
    std::vector<Of> host;
    for (const Of& one : all) host.push_back((this->*stage)(one));
    return host;
  }
  at::Tensor stage_copy_back(const at::Tensor& device, at::Tensor host) {
    used_ = true;
    back_.emplace_back(device, host);
    return host;
  }

  bool used_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;
};

}  // namespace collab::torch_adapter
