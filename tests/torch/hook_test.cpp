// Communication hooks that all-reduce over the default group get their site's mean; nobody else in backward does.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "collab/torch/backend.h"
#include "tests/torch/threads_group.h"
#include "torch/work.h"

namespace collab::torch_adapter {
namespace {

using collab::testing::Board;
using collab::testing::run_ranks;
using collab::testing::ThreadsGroup;
using Tensors = std::vector<at::Tensor>;

struct Boards {
  std::shared_ptr<Board> world = std::make_shared<Board>(3);
  std::shared_ptr<Board> site = std::make_shared<Board>(2);
  std::shared_ptr<Board> leaders = std::make_shared<Board>(2);
};

// Ranks 0 and 1 at one site, rank 2 alone at the other.
c10::intrusive_ptr<CollabBackend> backend_of(const Boards& boards, int rank, bool is_world) {
  BackendOptions options;
  options.rank = rank;
  options.size = 3;
  options.sites = {0, 0, 1};
  options.is_world = is_world;
  options.timeout = std::chrono::milliseconds(10'000);
  options.world = c10::make_intrusive<ThreadsGroup>(boards.world, rank, 3);
  if (rank < 2) options.site = c10::make_intrusive<ThreadsGroup>(boards.site, rank, 2);
  if (rank != 1) options.leaders = c10::make_intrusive<ThreadsGroup>(boards.leaders, rank == 0 ? 0 : 1, 2);
  return c10::make_intrusive<CollabBackend>(std::move(options));
}

struct InBackward : torch::autograd::Function<InBackward> {
  static std::function<void(const at::Tensor&)>& action() {
    thread_local std::function<void(const at::Tensor&)> current;
    return current;
  }
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    action()(gradients[0]);
    return gradients;
  }
};

void backward_with(std::function<void(const at::Tensor&)> action) {
  InBackward::action() = std::move(action);
  const at::Tensor x = at::ones({4}).requires_grad_();
  InBackward::apply(x).sum().backward();
}

TEST(CommunicationHook, SumsOverTheSiteScaledToTheWorld) {
  const Boards boards;
  run_ranks(3, [&](int rank) {
    const auto backend = backend_of(boards, rank, true);
    backward_with([&](const at::Tensor&) {
      const CommunicationHookScope hook;
      Tensors tensors{at::full({8}, static_cast<float>(rank + 1))};
      backend->allreduce(tensors, {})->wait();
      const float site_mean = rank < 2 ? 1.5F : 3.0F;
      EXPECT_FLOAT_EQ(tensors[0][0].item<float>() / 3, site_mean) << "rank " << rank;

      c10d::AllreduceOptions average;
      average.reduceOp = c10d::ReduceOp::AVG;
      Tensors mean{at::full({8}, static_cast<float>(rank + 1))};
      backend->allreduce(mean, average)->wait();
      EXPECT_EQ(mean[0][0].item<float>(), site_mean);

      c10d::AllreduceOptions most;
      most.reduceOp = c10d::ReduceOp::MAX;
      Tensors counts{at::full({2}, rank, at::kLong)};
      backend->allreduce(counts, most)->wait();
      EXPECT_EQ(counts[0][0].item<int64_t>(), rank < 2 ? 1 : 2) << "not scaled";

      for (const auto type : {at::kLong, at::kShort}) {
        Tensors whole{at::full({2}, -rank - 1, type)};
        backend->allreduce(whole, average)->wait();
        EXPECT_EQ(whole[0][0].item<int64_t>(), rank < 2 ? -1 : -3) << "the site's, of " << type;
      }
    });
    Tensors after{at::ones({8})};
    backend->allreduce(after, {})->wait();
    EXPECT_EQ(after[0][0].item<float>(), 3.0F) << "outside the hook it is the world again";
  });
}

// Gradients that a script reduces by hand, from hooks on its parameters.
TEST(CommunicationHook, BackwardWithoutAHookReducesOverTheWorld) {
  const Boards boards;
  run_ranks(3, [&](int rank) {
    const auto backend = backend_of(boards, rank, true);
    Tensors later{at::full({8}, static_cast<float>(rank + 1))};
    c10::intrusive_ptr<c10::ivalue::Future> chained;
    backward_with([&](const at::Tensor&) {
      Tensors tensors{at::full({8}, static_cast<float>(rank + 1))};
      const auto future = backend->allreduce(tensors, {})->getFuture();
      chained = future->then(
          [&](c10::ivalue::Future&) {
            backend->allreduce(later, {})->wait();
            return c10::IValue(true);
          },
          c10::BoolType::get());
      future->wait();
      EXPECT_EQ(tensors[0][0].item<float>(), 6.0F);
    });
    chained->wait();
    EXPECT_EQ(later[0][0].item<float>(), 6.0F) << "a callback, rank " << rank;
  });
}

TEST(CommunicationHook, IsOverWhenItThrows) {
  EXPECT_THROW(
      {
        const CommunicationHookScope hook;
        TORCH_CHECK(false, "a hook's error");
      },
      c10::Error);
  EXPECT_FALSE(CommunicationHookScope::active());
  {
    const CommunicationHookScope outer;
    { const CommunicationHookScope inner(false); }
    EXPECT_TRUE(CommunicationHookScope::active());
  }
  EXPECT_FALSE(CommunicationHookScope::active());
}

TEST(CommunicationHook, CallbacksOfItsFuturesAreRecognised) {
  const Boards boards;
  run_ranks(3, [&](int rank) {
    const auto backend = backend_of(boards, rank, true);
    Tensors first{at::full({8}, 1.0F)};
    Tensors second{at::full({8}, 1.0F)};
    c10::intrusive_ptr<c10::ivalue::Future> chained;
    backward_with([&](const at::Tensor&) {
      const CommunicationHookScope hook;
      chained = backend->allreduce(first, {})->getFuture()->then(
          [&](c10::ivalue::Future&) {
            backend->allreduce(second, {})->getFuture()->wait();
            return c10::IValue(true);
          },
          c10::BoolType::get());
    });
    chained->wait();
    EXPECT_FLOAT_EQ(second[0][0].item<float>(), 3.0F) << "the site's mean times the world, rank " << rank;
  });
}

TEST(CommunicationHook, OtherGroupsMeanWhatTheySay) {
  const Boards boards;
  run_ranks(3, [&](int rank) {
    const auto backend = backend_of(boards, rank, false);
    backward_with([&](const at::Tensor&) {
      const CommunicationHookScope hook;
      Tensors tensors{at::full({8}, static_cast<float>(rank + 1))};
      backend->allreduce(tensors, {})->wait();
      EXPECT_EQ(tensors[0][0].item<float>(), 6.0F);
    });
  });
}

}  // namespace
}  // namespace collab::torch_adapter
