// The c10d backend of groups whose ranks are at several sites: torch's collectives on the steps of the collective hub
// (core/protocol/collectives/collective_hub.h). So each rank only needs to dial out, and living ranks go on without the
// gone.
//
// Data movement gives the bits that Gloo gives. Each rank takes reductions in rank order, over the ranks that are there
// (CollabBackend takes floating sums and means elsewhere). Gather-like calls fail and name the rank that is gone.
// Threads: calls by one thread at a time, as any backend. Collectives run on one worker thread in the order they were
// issued. Sends and receives run on a thread for each peer and tag that has one in progress, and for a few that had
// one. Ownership: shares the rank's link.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tuple>
#include <vector>

#include "torch/hub_calls.h"
#include "torch/work.h"

namespace collab::torch_adapter {

// Throws c10::Error for one that Gloo does not know.
[[nodiscard]] const char* reduction_name(c10d::ReduceOp::RedOpType op);

inline constexpr const char* kNobodyGave =
    "collab: no rank of the group gave its part: every site has lost a rank [hub.nobody-gave]";

struct HubBackendOptions {
  std::shared_ptr<HubLink> hub_link;
  std::uint64_t group = 0;           // the same at all its ranks, and no other group's
  std::vector<std::uint32_t> ranks;  // of the world, in the order of the group's ranks
  std::vector<std::string> sites;    // names, by rank of the group
  int rank = 0;
  std::chrono::milliseconds timeout{30 * 60 * 1000};
};

class HubBackend final : public c10d::Backend {
 public:
  explicit HubBackend(HubBackendOptions options);
  ~HubBackend() override;

  const std::string getBackendName() const override { return "collab_hub"; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return issued_.load(); }
  void enableCollectivesTiming() override {}
  void abort() override { calls_->close(); }
#include "collab/torch/c10d_overrides.inc"

  // rows[r] is what rank r of the group brought, for ranks that are there: for sums over the living.
  struct Rows {
    at::Tensor rows;
    HubCalls::Living living;
  };
  // Blocking, on the caller's thread, which must be the only one that uses this backend.
  [[nodiscard]] Rows gather_living(const SumCall& sum, const at::Tensor& flat, const Deadline& deadline);
  // Instead of gather_living(): this rank cannot take part in it, the others do without it.
  void pass(const SumCall& sum, const at::Tensor& flat, const Deadline& deadline);
  // The number of the group's next call, which is made in another backend.
  [[nodiscard]] std::uint64_t count_call() { return counted_.fetch_add(1) + 1; }
  // The largest of what the ranks bring to a barrier, in place; people read of a barrier. `value` is one contiguous
  // host tensor of one dimension.
  WorkPtr most_at_barrier(const at::Tensor& value);
  // Says once for each that is missing that sums go on without it.
  void warn_missing(const HubCalls::Living& living);

 private:
  [[nodiscard]] HubCalls::Call call(std::string operation, const at::Tensor& like, const Deadline& deadline) const;
  WorkPtr post(const std::string& name, c10d::OpType type, TensorLists results, std::function<void()> job);
  [[nodiscard]] Rows living_rows(const HubCalls::Call& step, const at::Tensor& flat);
  // Over the ranks that are there, in rank order, in place.
  void combine(const HubCalls::Call& step, at::Tensor& flat, c10d::ReduceOp::RedOpType op);
  void sum_sparse(const at::Tensor& tensor, const Deadline& deadline);
  WorkPtr post_reduce(const std::string& name, c10d::OpType type, Tensors parts, const c10d::ReduceOp& op,
                      std::chrono::milliseconds timeout, TensorLists results,
                      std::function<void(const at::Tensor& flat)> deliver);
  [[nodiscard]] std::vector<at::Tensor> gather_rows(const std::string& operation, const at::Tensor& mine, bool wants,
                                                    const Deadline& deadline);
  WorkPtr post_letter(bool sends, int peer, int tag, const at::Tensor& tensor,
                      std::function<int(const HubCalls::Call& call)> job);
  [[nodiscard]] std::string describe_rank() const;

  HubBackendOptions options_;
  c10::intrusive_ptr<Options> backend_options_;
  std::shared_ptr<HubCalls> calls_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> counted_{0};  // of `issued_`, what all ranks of the group take part in
  std::uint64_t number_ = 0;               // the worker's: of the call it carries out
  HubCalls::Living told_;                  // the worker's; false: it has been said that this one is missing
  std::unique_ptr<WorkQueue> queue_;
  // Sends and receives wait for their peer, not for each other. There is a queue for each (sends, peer, tag); peer -1:
  // any.
  using Letters = std::map<std::tuple<bool, int, int>, std::shared_ptr<WorkQueue>>;
  [[nodiscard]] std::shared_ptr<WorkQueue> queue_of(bool sends, int peer, int tag);
  std::mutex letters_mutex_;  // held neither while a queue runs or ends, as callbacks may send and receive
  Letters letters_;
};

}  // namespace collab::torch_adapter
