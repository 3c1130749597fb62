#include "tests/torch/threads_group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

namespace collab::testing {
namespace {

constexpr std::chrono::milliseconds kLimit(20'000);

std::chrono::milliseconds limit_of(std::chrono::milliseconds asked) {
  return asked == c10d::kUnsetTimeout ? kLimit : asked;
}

// Done when it is made.
class DoneWork final : public c10d::Work {
 public:
  DoneWork() { finish(); }
};
c10::intrusive_ptr<c10d::Work> done() { return c10::make_intrusive<DoneWork>(); }

class ParcelWork final : public c10d::Work {
 public:
  using BoxPtr = std::shared_ptr<Board::Box>;
  ParcelWork(std::shared_ptr<Board> board, BoxPtr box, std::function<bool()> ready, std::function<void()> drop)
      : board_(std::move(board)), box_(std::move(box)), ready_(std::move(ready)), drop_(std::move(drop)) {}

  // As Gloo's: false when aborted.
  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock<std::mutex> lock(board_->mutex);
    const auto limit = std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(1));
    const bool in_time = box_->changed.wait_for(lock, limit, [this] { return aborted_ || ready_(); });
    TORCH_CHECK(in_time, "nobody met this send or receive in time");
    if (!aborted_) return true;
    drop_();
    return false;
  }
  void abort() override {
    const std::lock_guard<std::mutex> lock(board_->mutex);
    aborted_ = true;
    box_->changed.notify_all();
  }

 private:
  std::shared_ptr<Board> board_;
  BoxPtr box_;
  std::function<bool()> ready_;  // with the board's lock; throws when it can never be
  std::function<void()> drop_;
  bool aborted_ = false;
};

}  // namespace

std::vector<at::Tensor> Board::exchange(std::uint64_t sequence, int rank, const at::Tensor& mine,
                                        std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex);
  CollectiveHub& hub = hubs_[sequence];
  hub.given.resize(static_cast<std::size_t>(size_));
  hub.given[static_cast<std::size_t>(rank)] = mine.clone();
  ++hub.arrived;
  arrived_.notify_all();
  const bool all = arrived_.wait_for(lock, limit, [&] { return hub.arrived == size_; });
  TORCH_CHECK(all, "timed out: ", hub.arrived, " of ", size_, " ranks came to collective ", sequence);
  auto given = hub.given;
  if (++hub.left == size_) hubs_.erase(sequence);
  return given;
}

std::shared_ptr<Board::Box> Board::box(const Slot& slot) {
  auto& found = boxes_[slot];
  if (!found) found = std::make_shared<Box>();
  return found;
}

void Board::kill(int rank) {
  const std::lock_guard<std::mutex> lock(mutex);
  dead_.insert(rank);
  for (const auto& [slot, box] : boxes_) box->changed.notify_all();
}

ThreadsGroup::WorkPtr ThreadsGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const auto given = board_->exchange(sequence_++, rank_, tensors[0], limit_of(opts.timeout));
  at::Tensor total = given[0].clone();
  for (std::size_t rank = 1; rank < given.size(); ++rank) {
    switch (opts.reduceOp) {
      case c10d::ReduceOp::SUM: total.add_(given[rank]); break;
      case c10d::ReduceOp::PRODUCT: total.mul_(given[rank]); break;
      case c10d::ReduceOp::MAX: total = at::maximum(total, given[rank]); break;
      default: TORCH_CHECK(false, "the threads group has no such operation");
    }
  }
  tensors[0].copy_(total);
  return done();
}

ThreadsGroup::WorkPtr ThreadsGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const auto given = board_->exchange(sequence_++, rank_, tensors[0], limit_of(opts.timeout));
  tensors[0].copy_(given[static_cast<std::size_t>(opts.rootRank)]);
  return done();
}

ThreadsGroup::WorkPtr ThreadsGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& opts) {
  const auto given = board_->exchange(sequence_++, rank_, input, limit_of(opts.timeout));
  output.view(-1).copy_(at::cat(given).view(-1));
  return done();
}

ThreadsGroup::WorkPtr ThreadsGroup::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>&,
                                                  std::vector<int64_t>&, const c10d::AllToAllOptions& opts) {
  const auto given = board_->exchange(sequence_++, rank_, input, limit_of(opts.timeout));
  const int64_t share = input.numel() / size_;
  for (int from = 0; from < size_; ++from) {
    output.narrow(0, from * share, share).copy_(given[static_cast<std::size_t>(from)].narrow(0, rank_ * share, share));
  }
  return done();
}

ThreadsGroup::WorkPtr ThreadsGroup::barrier(const c10d::BarrierOptions& opts) {
  board_->exchange(sequence_++, rank_, at::zeros({1}), limit_of(opts.timeout));
  return done();
}

// Completes when the receiver has taken it, as a large send of Gloo's does.
ThreadsGroup::WorkPtr ThreadsGroup::send(Tensors& tensors, int destination, int tag) {
  const std::lock_guard<std::mutex> lock(board_->mutex);
  const auto box = board_->box({rank_, destination, tag});
  auto parcel = std::make_shared<Board::Parcel>();
  parcel->tensor = tensors[0];
  box->parcels.push_back(parcel);
  box->changed.notify_all();
  auto taken = [parcel, board = board_, destination] {
    TORCH_CHECK(parcel->taken || !board->dead(destination), "connection closed by peer");
    return parcel->taken;
  };
  return c10::make_intrusive<ParcelWork>(board_, box, std::move(taken), [parcel] { parcel->dropped = true; });
}

ThreadsGroup::WorkPtr ThreadsGroup::recv(Tensors& tensors, int source, int tag) {
  const std::lock_guard<std::mutex> lock(board_->mutex);
  const auto box = board_->box({source, rank_, tag});
  auto arrived = [board = board_, box, source, target = tensors[0]] {
    auto& waiting = box->parcels;
    while (!waiting.empty() && waiting.front()->dropped) waiting.pop_front();
    TORCH_CHECK(!waiting.empty() || !board->dead(source), "connection closed by peer");
    if (waiting.empty()) return false;
    const auto parcel = waiting.front();
    waiting.pop_front();
    TORCH_CHECK(parcel->tensor.nbytes() == target.nbytes(), "a receive of ", target.nbytes(), " bytes met a send of ",
                parcel->tensor.nbytes());
    at::Tensor(target).copy_(parcel->tensor);
    parcel->taken = true;
    box->changed.notify_all();
    return true;
  };
  return c10::make_intrusive<ParcelWork>(board_, box, std::move(arrived), [] {});
}

void run_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace collab::testing
