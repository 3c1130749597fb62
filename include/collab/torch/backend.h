// The c10d backend "collab" of one process group. It defines what each collective means when the group's ranks are at
// several sites. This is the only public header that knows torch.
//
// All ranks at one site: every call goes to torch's Gloo unchanged, bit for bit. Several sites: data movement,
// integers, min and max go to a group over all ranks, which is the collective hub's or, on request, Gloo's. Gloo
// reduces floating sums and products within each site. Then the sites' leaders reduce them in ascending site order, so
// that every rank of every run holds the same bits. Gloo refuses means of integers. Here they work everywhere as in
// NCCL: the sum, wrapped to the type, divided towards zero. Tensors on an accelerator are staged through host memory.
//
// Threads: as for any c10d backend, one thread at a time makes calls, in the same order at every rank. Callbacks of
// futures may make calls too. Sums of several steps run on one worker thread of the backend. Ownership: shares the
// three inner backends. Nothing else may use them, as their collectives are matched by the order in which they were
// issued.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace collab::torch_adapter {

struct BackendOptions {
  int rank = 0;
  int size = 1;
  std::vector<int> sites;  // the site's index of every rank of this group
  // Groups. `world`: all ranks. `site`: the ranks at this rank's site, in rank order (null for one rank or one site).
  // `leaders`: the lowest rank of each site, by ascending site index (null at other ranks and for one site).
  c10::intrusive_ptr<c10d::Backend> world;
  c10::intrusive_ptr<c10d::Backend> site;
  c10::intrusive_ptr<c10d::Backend> leaders;
  std::chrono::milliseconds timeout{30 * 60 * 1000};
  // True for the default group: a communication hook's all_reduce is then done over the site.
  bool is_world = false;
};

class WorkQueue;
class OrderedReducer;
class Staging;
struct ReduceJob;

class CollabBackend final : public c10d::Backend {
 public:
  // Throws c10::Error when the options contradict each other.
  explicit CollabBackend(BackendOptions options);
  ~CollabBackend() override;

  // Every barrier of this group first calls this, on the caller's thread. Empty: no callback.
  void set_pre_barrier(std::function<void()> callback) { pre_barrier_ = std::move(callback); }
  // The largest value of all ranks, for use in that callback. If the calls of ranks differ, the error text names a
  // barrier. Blocking.
  [[nodiscard]] std::int64_t most_at_barrier(std::int64_t mine);

  // Called on the caller's thread before each collective that is issued while set_in_step(true) is in force there, if
  // the group spans several sites. It gets the collective's name and the number of elements per rank. An exception ends
  // the call.
  using StepWatch = std::function<void(const std::string& collective, std::int64_t elements)>;
  void watch_steps(StepWatch watch) { step_watch_ = std::move(watch); }
  // Says whether an optimizer's step() is running on the calling thread.
  static void set_in_step(bool on);

  [[nodiscard]] bool single_site() const { return reducer_ == nullptr; }
  [[nodiscard]] const std::vector<int>& sites() const { return options_.sites; }

  const std::string getBackendName() const override { return "collab"; }
  void setSequenceNumberForGroup() override;
  uint64_t getSequenceNumberForGroup() override;
  void enableCollectivesTiming() override;
  c10d::ErrorType getError() override;
  void abort() override;
#include "collab/torch/c10d_overrides.inc"

 private:
  [[nodiscard]] bool reduced_here(const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  [[nodiscard]] bool in_communication_hook() const;
  [[nodiscard]] std::string describe_rank() const;  // "rank 3 (site 1, leader)"
  // Posts `job` to the worker; its future holds `results`.
  WorkPtr post(const char* name, c10d::OpType type, TensorLists results, std::function<void()> job,
               bool from_hook = false);
  WorkPtr post_all_reduce(const char* name, c10d::OpType type, const Tensors& tensors, const c10d::ReduceOp& op,
                          std::chrono::milliseconds timeout, bool over_site);
  WorkPtr post_reduce(ReduceJob job);
  WorkPtr post_integer_mean(ReduceJob job);  // one site
  void begins(const char* collective, const Tensors& brought) const;
  // Makes `call` on the world's group. The call writes to the tensors that it reads.
  template <typename Call>
  WorkPtr forward_in_place(const char* name, c10d::OpType type, const Tensors& tensors, Call call);
  // `inner` as it is if nothing was staged, otherwise a work that copies back after it.
  WorkPtr unstage(const char* name, c10d::OpType type, WorkPtr inner, Staging staging, TensorLists results);
  WorkPtr unstage_point_to_point(c10d::OpType type, WorkPtr inner, Staging staging);

  BackendOptions options_;
  c10::intrusive_ptr<Options> backend_options_;
  std::function<void()> pre_barrier_;
  StepWatch step_watch_;
  std::atomic<std::uint64_t> ordered_{0};      // collectives that the world's group has not counted
  std::shared_ptr<std::atomic<bool>> failed_;  // some collective on the worker has failed
  std::unique_ptr<OrderedReducer> reducer_;    // null: one site
  std::unique_ptr<WorkQueue> queue_;
};

}  // namespace collab::torch_adapter
