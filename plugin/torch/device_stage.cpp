#include "torch/device_stage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "torch/device.h"
#include "torch/torch_private.h"

namespace collab::torch_adapter {
namespace {

// Falls back to ordinary memory if none can be pinned: copies are then slower, but correct.
at::Tensor host_memory(int64_t count) {
  const at::TensorOptions options(at::kFloat);
  try {
    return at::empty({count}, options.pinned_memory(true));
  } catch (const c10::Error&) {
    return at::empty({count}, options);
  }
}

at::Tensor wrap(std::span<const float> memory) {
  return at::from_blob(const_cast<float*>(memory.data()), {static_cast<int64_t>(memory.size())}, at::kFloat);
}

}  // namespace

at::Tensor DeviceStage::place(std::size_t elements, at::Device device) {
  const auto count = static_cast<int64_t>(elements);
  if (halves_[current_].used + count > kMost) {
    const c10::DeviceGuard here(device);  // recording an event makes torch restore the thread's previous device
    const c10::impl::VirtualGuardImpl guard(device.type());
    Half& full = halves_[current_];
    full.copied.emplace(device.type());
    full.copied->record(guard.getStream(device));
    current_ = 1 - current_;
    Half& next = halves_[current_];
    if (next.copied) next.copied->synchronize();
    empty(next);
  }
  Half& half = halves_[current_];
  if (!half.memory.defined()) half.memory = host_memory(kMost);
  return half.memory.narrow(0, std::exchange(half.used, half.used + count), count);
}

std::shared_ptr<void> DeviceStage::pin_memory(std::span<const float> memory, at::Device device) {
  std::erase_if(locked_, [](const std::weak_ptr<PageLock>& each) { return each.expired(); });
  std::shared_ptr<PageLock> lock = PageLock::make(memory, device);
  if (lock) locked_.push_back(lock);
  return lock;
}

bool DeviceStage::is_locked(std::span<const float> memory) const {
  return std::ranges::any_of(locked_, [&](const std::weak_ptr<PageLock>& each) {
    const std::shared_ptr<PageLock> lock = each.lock();
    return lock && lock->holds(memory);
  });
}

void DeviceStage::go_to(at::Device device) {
  if (device_ && *device_ != device) finish();
  device_ = device;
}

void DeviceStage::fetch(const at::Tensor& source, std::span<float> out) {
  go_to(source.device());
  if (is_locked(out)) {
    wrap(out).copy_(source, /*non_blocking=*/true);
    return;
  }
  at::Tensor memory = place(out.size(), source.device());
  memory.copy_(source, /*non_blocking=*/true);
  Half& half = halves_[current_];
  half.fetched.push_back({out, half.used - static_cast<int64_t>(out.size())});
}

at::Tensor DeviceStage::send(std::span<const float> values, at::Device device) {
  go_to(device);
  if (is_locked(values)) return wrap(values).to(device, at::kFloat, /*non_blocking=*/true, /*copy=*/true);
  const at::Tensor memory = place(values.size(), device);
  std::memcpy(memory.mutable_data_ptr<float>(), values.data(), values.size_bytes());
  return memory.to(device, at::kFloat, /*non_blocking=*/true, /*copy=*/true);
}

void DeviceStage::finish() {
  if (!device_) return;
  wait_for_stream(*std::exchange(device_, std::nullopt));
  empty(halves_[1 - current_]);  // in the order of filling
  empty(halves_[current_]);
}

void DeviceStage::drop() noexcept {
  bool waited = true;
  try {
    if (device_) wait_for_stream(*device_);
  } catch (...) {
    waited = false;
  }
  device_.reset();
  for (Half& half : halves_) {
    half.fetched.clear();
    half.copied.reset();
    half.used = 0;
    if (!waited) half.memory = at::Tensor();  // a copy still in progress must not write to reused memory
  }
}

void DeviceStage::empty(Half& half) {
  for (const Part& part : half.fetched) {
    std::memcpy(part.out.data(), half.memory.const_data_ptr<float>() + part.at, part.out.size_bytes());
  }
  half.fetched.clear();
  half.copied.reset();
  half.used = 0;
}

}  // namespace collab::torch_adapter
