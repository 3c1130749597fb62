#include "torch/page_lock.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <functional>
#include <string>

#include "core/base/log.h"
#include "torch/torch_private.h"

namespace collab::torch_adapter {
namespace {

// A function of CUDA's runtime. torch loads the runtime with global symbols; collab is built without its headers.
template <typename Function>
Function* of_runtime(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

std::shared_ptr<PageLock> PageLock::make(std::span<const float> memory, at::Device device) {
  constexpr unsigned kForAllDevices = 1;  // cudaHostRegisterPortable
  constexpr unsigned kReadOnly = 8;       // cudaHostRegisterReadOnly, for mappings without write access
  auto* const lock = of_runtime<int(void*, std::size_t, unsigned)>("cudaHostRegister");
  auto* const last_error = of_runtime<int()>("cudaGetLastError");
  if (memory.empty() || lock == nullptr || last_error == nullptr) return nullptr;
  std::string why;
  try {
    const c10::DeviceGuard there(device);  // on another device it would create a context
    for (const unsigned flags : {kForAllDevices, kForAllDevices | kReadOnly}) {
      const int error = lock(const_cast<float*>(memory.data()), memory.size_bytes(), flags);
      if (error == 0) return std::shared_ptr<PageLock>(new PageLock(memory, device));
      last_error();  // clears the error, which torch would throw at its next call
      why = "cudaHostRegister gave error " + std::to_string(error);
    }
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  }
  log_debug("copies between GPU and host go through memory of their own: " + why);
  return nullptr;
}

PageLock::~PageLock() {
  try {
    const c10::DeviceGuard there(device_);
    auto* const unlock = of_runtime<int(void*)>("cudaHostUnregister");
    auto* const last_error = of_runtime<int()>("cudaGetLastError");
    if (unlock != nullptr && unlock(const_cast<float*>(memory_.data())) != 0 && last_error != nullptr) last_error();
  } catch (const c10::Error&) {  // in a forked child, or after the runtime's end, nothing is locked
  }
}

bool PageLock::holds(std::span<const float> part) const {
  const std::less_equal<> before;  // also compares pointers into different memory
  return before(memory_.data(), part.data()) && before(part.data() + part.size(), memory_.data() + memory_.size());
}

}  // namespace collab::torch_adapter
