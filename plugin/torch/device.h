// Waiting for an accelerator. Host memory has nothing to wait for.
//
// Threads: any. Worker threads begin on device 0, and torch restores the device that a thread was on. The guard keeps
// that from being device 0: a process that uses another GPU would create a context there.
#pragma once

#include "torch/torch_private.h"

namespace collab::torch_adapter {

// All that runs there, on any stream. Without work under way this costs microseconds.
inline void wait_for_device(at::Device device) {
  if (device.is_cpu()) return;
  const c10::DeviceGuard here(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(guard.getDevice().index());
}

// What this thread has begun there, on the stream that is current; others go on.
inline void wait_for_stream(at::Device device) {
  if (device.is_cpu()) return;
  const c10::DeviceGuard here(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(guard.getDevice()));
}

}  // namespace collab::torch_adapter
