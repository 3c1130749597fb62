// Copies float32 between host memory and an accelerator, through pinned memory.
//
// A copy to or from pageable host memory blocks, and is slower: 6 GB/s in pieces of 256 KiB, where pinned memory
// reaches 14, and 8 to 15 GB/s in large pieces, where pinned memory reaches 55 (H200). Here two halves take turns: the
// device copies one while the host fills or empties the other. Page-locked memory of the arena is copied directly. A
// switch to another device waits for the copies of the previous one.
//
// Threads: one at a time. Ownership: owns the pinned memory, and borrows the copied memory until finish().
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "torch/page_lock.h"
#include "torch/torch_private.h"

namespace collab::torch_adapter {

class DeviceStage {
 public:
  static constexpr int64_t kMost = 1 << 20;  // elements per call of fetch() or send()

  // While the returned object lives, copies to and from this memory are direct. Null if the memory cannot be locked.
  [[nodiscard]] std::shared_ptr<void> pin_memory(std::span<const float> memory, at::Device device);
  // `source` is a contiguous vector of float32 on a device. `out` has its values once finish() has returned.
  void fetch(const at::Tensor& source, std::span<float> out);
  // The values on the device, for work on the stream that is current there. They stay as they are until finish().
  [[nodiscard]] at::Tensor send(std::span<const float> values, at::Device device);
  // Waits for the stream that is current at the device.
  void finish();
  // For use after an error: ends all writes to borrowed memory.
  void drop() noexcept;

 private:
  struct Part {
    std::span<float> out;
    int64_t at;
  };
  struct Half {
    at::Tensor memory;
    int64_t used = 0;
    std::vector<Part> fetched;
    std::optional<c10::Event> copied;  // after the copy out of or into the full half
  };
  // Pinned memory for this many elements, once earlier copies there are done.
  [[nodiscard]] at::Tensor place(std::size_t count, at::Device device);
  [[nodiscard]] bool is_locked(std::span<const float> memory) const;
  void go_to(at::Device device);  // waits for copies of the previous device
  static void empty(Half& half);

  std::array<Half, 2> halves_;
  std::size_t current_ = 0;
  std::optional<at::Device> device_;  // of the copies in progress
  std::vector<std::weak_ptr<PageLock>> locked_;
};

}  // namespace collab::torch_adapter
