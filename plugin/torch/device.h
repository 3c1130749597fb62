// Waits for an accelerator. For host memory there is nothing to wait for.
//
// Threads: any. Worker threads start on device 0, and torch restores a thread's previous device. The guard avoids
// restoring device 0, as this would create a context there in a process that uses another GPU.
#pragma once

#include "torch/torch_private.h"

namespace collab::torch_adapter {

// Waits for all work on the device, on any stream. If there is none, this takes microseconds.
inline void wait_for_device(at::Device device) {
  if (device.is_cpu()) return;
  const c10::DeviceGuard here(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(guard.getDevice().index());
}

// Waits for the work on this thread's current stream there; other streams go on.
inline void wait_for_stream(at::Device device) {
  if (device.is_cpu()) return;
  const c10::DeviceGuard here(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(guard.getDevice()));
}

}  // namespace collab::torch_adapter
