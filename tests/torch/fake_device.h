// Accelerators that are not there: torch's `meta` tensors, which have no memory, with devices that keep a record.
//
// As with CUDA, each thread begins at device 0, and waiting for a device or recording an event there sets the
// thread's device before and comes back to what it was: either makes a context at the device that it sets.
// Threads: any. Ownership: one at a time in a process; it stands in for torch's own until it ends.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace collab::torch_adapter {

class FakeDevices final : public c10::impl::DeviceGuardImplInterface {
 public:
  FakeDevices() : before_(place().exchange(this)) {}
  ~FakeDevices() override { place().store(before_); }
  FakeDevices(const FakeDevices&) = delete;
  FakeDevices& operator=(const FakeDevices&) = delete;

  // An empty tensor's storage with its device: torch's own of `meta` has none that is numbered.
  static at::Tensor tensor(c10::DeviceIndex index, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    c10::Storage storage(c10::Storage::use_byte_size_t(), 4096, c10::DataPtr(nullptr, c10::Device(c10::kMeta, index)));
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), caffe2::TypeMeta::Make<float>());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return tensor;
  }

  // What was waited for, in order: "device 1", "stream of 1", "event".
  [[nodiscard]] std::vector<std::string> waits() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waits_;
  }
  [[nodiscard]] std::set<int> contexts() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return contexts_;
  }

  c10::DeviceType type() const override { return c10::kMeta; }
  c10::Device getDevice() const override { return {c10::kMeta, current_}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {c10::kMeta, std::exchange(current_, device.index())};
  }
  void setDevice(c10::Device device) const override { current_ = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_ = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void record(void**, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    set_and_come_back(stream.device_index());
  }
  void block(void*, const c10::Stream&) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void synchronizeEvent(void*) const override { wait("event"); }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    set_and_come_back(index);
    wait("device " + std::to_string(index));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    set_and_come_back(stream.device_index());
    wait("stream of " + std::to_string(stream.device_index()));
  }

 private:
  static std::atomic<const c10::impl::DeviceGuardImplInterface*>& place() {
    return c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kMeta)];
  }
  void set_and_come_back(int index) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    contexts_.insert({index, current_});
  }
  void wait(std::string what) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    waits_.push_back(std::move(what));
  }

  static inline thread_local c10::DeviceIndex current_ = 0;
  const c10::impl::DeviceGuardImplInterface* before_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::string> waits_;
  mutable std::set<int> contexts_;
};

}  // namespace collab::torch_adapter
