// The parts of the Python module _C, one function each, and their common helpers.
//
// Threads: called with the interpreter's lock. A C++ object that a Python object owns releases the lock before it waits
// for threads.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <string>

#include "collab/config.h"
#include "collab/status.h"
#include "collab/transport.h"

namespace collab {
class HubLink;
}

namespace collab::torch_adapter {

void bind_errors(pybind11::module_& module);
void bind_backend(pybind11::module_& module);  // make_backend
void bind_config(pybind11::module_& module);   // knobs, codecs, log, build information
void bind_hub(pybind11::module_& module);      // a rank's link to the hub
void bind_session(pybind11::module_& module);  // sessions and coordinators
void bind_tensors(pybind11::module_& module);  // digests, state files, arenas

// Sets the Python exception for the status code and throws; a no-op for an ok status.
void raise(const Status& status);
template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

// A pointer that deletes the object without the interpreter's lock, as the destructor may join threads that need this
// lock.
template <typename T>
std::shared_ptr<T> without_lock(std::unique_ptr<T> object) {
  return std::shared_ptr<T>(object.release(), [](T* raw) {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      const pybind11::gil_scoped_release released;
      delete raw;
    } else {
      delete raw;
    }
  });
}

// From {"kind": "ucx" | "gloo" | ..., ...}; see _C.pyi. Callable from any thread, without the interpreter's lock.
using TransportFactory = std::function<Result<std::unique_ptr<Transport>>()>;
[[nodiscard]] TransportFactory transport_factory(const pybind11::dict& spec);

// Passes a new transport to `use` and returns the result, or the error of `factory`. Threads: as for `factory`.
template <typename Use>
auto with_transport(const TransportFactory& factory, const Use& use) -> decltype(use(factory().value())) {
  Result<std::unique_ptr<Transport>> made = factory();
  if (!made.ok()) return made.status();
  return use(std::move(made).value());
}

// A rank's link to the collective hub of its world, shared with the backends that use it.
struct PyHubLink {
  std::shared_ptr<HubLink> hub_link;
};

// All loaded knobs, each with its source.
struct PyConfig {
  LoadedConfig loaded;
};

}  // namespace collab::torch_adapter
