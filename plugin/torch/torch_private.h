// Headers of torch that are private or may change with any release, and what collab expects of each.
//
// No other source includes these headers (ci/rules_torch.py). Sources include torch's documented headers directly:
// tensors, errors, and c10d's base classes for backends. Overriding these classes binds collab to one minor version
// too. bindings.h includes torch's casters for pybind11, which need the interpreter's headers.
// Threads: as each header says.
#pragma once

// at::AutoDispatchBelowADInplaceOrView: while an object lives, autograd does not record its thread's operations on
// tensors, and version counters do not change.
#include <ATen/core/LegacyTypeDispatch.h>
// c10::DeviceGuard, c10::OptionalDeviceGuard: the thread is on that device, of any type, until the guard is destroyed.
#include <c10/core/DeviceGuard.h>
// c10::Event: record() on a stream of any device; synchronize() waits for the work that was on the stream then.
#include <c10/core/Event.h>
// c10::impl::VirtualGuardImpl: the current device and stream of a device's type, and waiting for either.
#include <c10/core/impl/VirtualGuardImpl.h>
