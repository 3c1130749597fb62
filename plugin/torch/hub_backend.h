// The c10d backend of groups whose ranks are at several sites: torch's collectives on the steps of the collective hub
// (core/protocol/collectives/collective_hub.h). So each rank only needs to dial out, and living ranks go on without
// lost ones.
//
// Data movement gives the same bits as Gloo. Each rank computes reductions in rank order, over the living ranks
// (CollabBackend does floating sums and means elsewhere). Gather-like calls fail if a rank is lost, and name it.
// Threads: calls by one thread at a time, as any backend. Collectives run on one worker thread in the order they were
// issued. Sends and receives run on one thread per peer and tag that is in use, and on a few idle ones. Ownership:
// shares the rank's link.
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

// Throws c10::Error for an operation that Gloo does not know.
[[nodiscard]] const char* reduction_name(c10d::ReduceOp::RedOpType op);

inline constexpr const char* kNobodyGave =
    "collab: no rank of the group gave its part: every site has lost a rank [hub.nobody-gave]";

struct HubBackendOptions {
  std::shared_ptr<HubLink> hub_link;
  std::uint64_t group = 0;           // the group's number: the same at all its ranks, and unique
  std::vector<std::uint32_t> ranks;  // ranks of the world, in the order of the group's ranks
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

  // rows[r] is the contribution of rank r of the group, if it is living. For sums over the living ranks.
  struct Rows {
    at::Tensor rows;
    HubCalls::Living living;
  };
  // Blocking, on the caller's thread, which must be the only one that uses this backend.
  [[nodiscard]] Rows gather_living(const SumCall& sum, const at::Tensor& flat, const Deadline& deadline);
  // Called in place of gather_living() by a rank that cannot take part; the others go on without it.
  void pass(const SumCall& sum, const at::Tensor& flat, const Deadline& deadline);
  // Counts a call of the group that another backend makes, and returns its number.
  [[nodiscard]] std::uint64_t count_call() { return counted_.fetch_add(1) + 1; }
  // The largest of the ranks' values, in place. Error texts name a barrier. `value` is one contiguous host tensor of
  // one dimension.
  WorkPtr most_at_barrier(const at::Tensor& value);
  // Logs once per missing rank that sums go on without it.
  void warn_missing(const HubCalls::Living& living);

 private:
  [[nodiscard]] HubCalls::Call call(std::string operation, const at::Tensor& like, const Deadline& deadline) const;
  WorkPtr post(const std::string& name, c10d::OpType type, TensorLists results, std::function<void()> job);
  [[nodiscard]] Rows living_rows(const HubCalls::Call& step, const at::Tensor& flat);
  // Combines the living ranks' values, in rank order, in place.
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
  std::atomic<std::uint64_t> counted_{0};  // those of `issued_` in which all ranks of the group take part
  std::uint64_t number_ = 0;               // the worker's: the number of the call in progress
  HubCalls::Living told_;                  // the worker's; false: the warning about this rank was logged
  std::unique_ptr<WorkQueue> queue_;
  // Sends and receives wait for their peer, not for each other, so each (sends, peer, tag) has its own queue; peer -1:
  // any.
  using Letters = std::map<std::tuple<bool, int, int>, std::shared_ptr<WorkQueue>>;
  [[nodiscard]] std::shared_ptr<WorkQueue> queue_of(bool sends, int peer, int tag);
  std::mutex letters_mutex_;  // not held while a queue runs or ends, as callbacks may send and receive
  Letters letters_;
};

}  // namespace collab::torch_adapter
