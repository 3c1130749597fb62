#include "torch/site_group.h"

#include <ATen/ATen.h>

#include <string>

namespace collab::torch_adapter {
namespace {

template <typename Body>
Status guarded(const char* what, const c10::intrusive_ptr<c10d::Backend>& backend, std::chrono::milliseconds timeout,
               const Body& body) {
  std::string why;
  try {
    body();
    return {};
  } catch (const c10::Error& e) {
    why = e.what_without_backtrace();
  } catch (const std::exception& e) {
    why = e.what();
  }
  return unavailable(std::string(what) + " within the site failed at its rank " + std::to_string(backend->getRank()) +
                     " of " + std::to_string(backend->getSize()) + " (limit " + std::to_string(timeout.count()) +
                     " ms); a rank of this site has died or is not in the same call: " + why + " [ddp.within-site]");
}

}  // namespace

Status BackendSiteGroup::broadcast(std::span<std::byte> bytes) {
  if (!backend_ || bytes.empty()) return {};
  return guarded("a broadcast", backend_, timeout_, [&] {
    std::vector<at::Tensor> tensors{
        at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::TensorOptions(at::kByte))};
    c10d::BroadcastOptions opts;
    opts.timeout = timeout_;
    backend_->broadcast(tensors, opts)->wait();
  });
}

Result<std::vector<std::byte>> BackendSiteGroup::gather_all(std::span<const std::byte> bytes) {
  std::vector<std::byte> given(bytes.begin(), bytes.end());
  if (!backend_ || bytes.empty()) return given;
  std::vector<std::byte> gathered(bytes.size() * static_cast<std::size_t>(backend_->getSize()));
  Status status = guarded("a gather", backend_, timeout_, [&] {
    const auto tensor = [](std::vector<std::byte>& of) {
      return at::from_blob(of.data(), {static_cast<int64_t>(of.size())}, at::TensorOptions(at::kByte));
    };
    at::Tensor own = tensor(given);
    at::Tensor all = tensor(gathered);
    c10d::AllgatherOptions opts;
    opts.timeout = timeout_;
    backend_->_allgather_base(all, own, opts)->wait();
  });
  if (!status.ok()) return status;
  return gathered;
}

}  // namespace collab::torch_adapter
