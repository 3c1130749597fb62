// Float32 on its way between host memory and an accelerator, through pinned memory.
//
// A copy to or from pageable host memory blocks, and is slower: 6 GB/s in pieces of 256 KiB, where pinned memory
// reaches 14, and 8 to 15 GB/s in large pieces, where pinned memory reaches 55 (H200). Here two halves take turns: one
// is copied by the device while the host fills or empties the other. Locked memory of the arena is copied
// directly. What goes to one device after another waits in between.
//
// Threads: one at a time. Ownership: the pinned memory, kept until the end; borrows what it copies until finish().
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
  static constexpr int64_t kMost = 1 << 20;  // elements of a call below

  // Copies to and from this memory go straight there while what is returned lives. Empty where none can be locked.
  [[nodiscard]] std::shared_ptr<void> pin_memory(std::span<const float> memory, at::Device device);
  // `source` is a contiguous vector of float32 on a device. It is in `out` when finish() has returned.
  void fetch(const at::Tensor& source, std::span<float> out);
  // The values on the device, for work on the stream that is current there. They stay as they are until finish().
  [[nodiscard]] at::Tensor send(std::span<const float> values, at::Device device);
  // Waits for the stream that is current at the device.
  void finish();
  // After an error: nothing more is written to what was borrowed.
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
    std::optional<c10::Event> copied;  // once it is full
  };
  // A place for so many elements, behind the copies in progress there.
  [[nodiscard]] at::Tensor place(std::size_t count, at::Device device);
  [[nodiscard]] bool is_locked(std::span<const float> memory) const;
  void go_to(at::Device device);  // waits for what is under way on the previous device
  static void empty(Half& half);

  std::array<Half, 2> halves_;
  std::size_t current_ = 0;
  std::optional<at::Device> device_;  // of what is under way
  std::vector<std::weak_ptr<PageLock>> locked_;
};

}  // namespace collab::torch_adapter
