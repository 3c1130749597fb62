// A c10d backend whose ranks are threads of one process: what the adapter's tests put in the place of Gloo, whose
// headers the wheel does not carry.
//
// Collectives are matched by the order of their issue at each rank, as Gloo does it; sums run in rank order in the
// tensor's own type. Every wait is bounded.
// Threads: one backend a thread, or several threads on one backend's send and recv.
// Ownership: the backends of one group share its board.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tuple>
#include <vector>

namespace collab::testing {

// Where the ranks meet.
class Board {
 public:
  explicit Board(int size) : size_(size) {}

  // The contribution of every rank to collective number `sequence`; blocks until all have come.
  std::vector<at::Tensor> exchange(std::uint64_t sequence, int rank, const at::Tensor& mine,
                                   std::chrono::milliseconds limit);

  // From one rank to another under one tag: what is sent and not yet received.
  struct Parcel {
    at::Tensor tensor;
    bool taken = false;
    bool dropped = false;
  };
  struct Box {
    std::condition_variable changed;
    std::deque<std::shared_ptr<Parcel>> parcels;
  };
  using Slot = std::tuple<int, int, int>;      // from, to, tag
  std::shared_ptr<Box> box(const Slot& slot);  // with the lock
  // Sends to it and receives from it fail from now on, as when its process has gone.
  void kill(int rank);
  [[nodiscard]] bool dead(int rank) const { return dead_.count(rank) != 0; }  // with the lock

  std::mutex mutex;

 private:
  struct CollectiveHub {
    std::vector<at::Tensor> given;
    int arrived = 0;
    int left = 0;
  };
  int size_;
  std::condition_variable arrived_;
  std::map<std::uint64_t, CollectiveHub> hubs_;
  std::map<Slot, std::shared_ptr<Box>> boxes_;
  std::set<int> dead_;
};

class ThreadsGroup final : public c10d::Backend {
 public:
  ThreadsGroup(std::shared_ptr<Board> board, int rank, int size)
      : c10d::Backend(rank, size), board_(std::move(board)) {}

  const std::string getBackendName() const override { return "threads"; }
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

  [[nodiscard]] std::uint64_t collectives() const { return sequence_; }

 private:
  std::shared_ptr<Board> board_;
  std::atomic<std::uint64_t> sequence_{0};
};

// Runs body(rank) on one thread a rank and rethrows what the first of them threw.
void run_ranks(int ranks, const std::function<void(int rank)>& body);

}  // namespace collab::testing
