// What collab includes of torch that is private there or may change with any release, and what it expects of each.
//
// No other source includes these headers (ci/rules_torch.py). What torch documents for all is included where it is
// used: tensors, errors, and c10d's classes for backends of others, which are overridden and so bind collab to one
// minor version too. bindings.h includes torch's casters for pybind11, which need the interpreter's headers.
// Threads: as of each.
#pragma once

// at::AutoDispatchBelowADInplaceOrView: while one lives, autograd does not record what its thread does to tensors, and
// their version counters stay.
#include <ATen/core/LegacyTypeDispatch.h>
// c10::DeviceGuard, c10::OptionalDeviceGuard: the thread is on that device, of any type, until they go.
#include <c10/core/DeviceGuard.h>
// c10::Event: record() on a stream of any device, synchronize() waits for what was on the stream then.
#include <c10/core/Event.h>
// c10::impl::VirtualGuardImpl: the current device and stream of a device's type, and waiting for either.
#include <c10/core/impl/VirtualGuardImpl.h>
