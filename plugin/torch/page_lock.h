// Host memory that is page-locked for a GPU: copies to and from it need no staging buffer.
//
// Uses CUDA's runtime, which torch has loaded. If there is none, or if it refuses, no memory is locked.
// Threads: any. Ownership: borrows the memory, which must outlive this.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

namespace collab::torch_adapter {

class PageLock {
 public:
  // Null if the memory cannot be locked.
  [[nodiscard]] static std::shared_ptr<PageLock> make(std::span<const float> memory, at::Device device);
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

  [[nodiscard]] bool holds(std::span<const float> part) const;

 private:
  PageLock(std::span<const float> memory, at::Device device) : memory_(memory), device_(device) {}
  std::span<const float> memory_;
  at::Device device_;
};

}  // namespace collab::torch_adapter
