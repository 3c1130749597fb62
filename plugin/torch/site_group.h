// The site's process group as a session sees it: broadcasts and gathers over a c10d backend for host memory.
//
// Threads: one at a time, without the interpreter's lock. Ownership: shares the backend, which nothing else may use
// while the session lives. Null stands for a site of one rank.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collab/session.h"

namespace collab::torch_adapter {

class BackendSiteGroup final : public SiteGroup {
 public:
  BackendSiteGroup(c10::intrusive_ptr<c10d::Backend> backend, std::chrono::milliseconds timeout)
      : backend_(std::move(backend)), timeout_(timeout) {}
  Status broadcast(std::span<std::byte> bytes) override;
  Result<std::vector<std::byte>> gather_all(std::span<const std::byte> bytes) override;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::chrono::milliseconds timeout_;
};

}  // namespace collab::torch_adapter
