// Collectives between sites that are issued while an optimizer's step() runs are told of, with what a rank brings.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>

#include "collab/torch/backend.h"
#include "tests/torch/test_world.h"
#include "torch/work.h"

namespace collab::torch_adapter {
namespace {

using collab::testing::run_ranks;
using collab::testing::TestWorld;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

// Ends each collective before it goes anywhere, so that every kind can be tried at one rank.
struct Seen : std::exception {};

class Watched {
 public:
  explicit Watched(const std::vector<int>& sites) : backend_(TestWorld(sites).backend(0)) {
    backend_->watch_steps([this](const std::string& collective, std::int64_t elements) {
      last_ = {collective, elements};
      throw Seen();
    });
    CollabBackend::set_in_step(true);
  }
  ~Watched() { CollabBackend::set_in_step(false); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  CollabBackend& operator*() { return *backend_; }

  template <typename Call>
  std::pair<std::string, std::int64_t> of(const Call& call) {
    last_ = {};
    EXPECT_THROW(call(*backend_), Seen);
    return last_;
  }

 private:
  c10::intrusive_ptr<CollabBackend> backend_;
  std::pair<std::string, std::int64_t> last_;
};

using Told = std::pair<std::string, std::int64_t>;

TEST(StepWatch, SeesReductions) {
  Watched watched({0, 1});
  Tensors four{at::ones({4})};
  Tensors two{at::ones({2})};
  Tensors more{at::ones({4}), at::ones({3}, at::kLong)};
  TensorLists halves{{at::ones({2}), at::ones({2})}};
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.allreduce(four, {}); }), Told("all_reduce", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.allreduce_sparse(four, {}); }), Told("all_reduce", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.allreduce_coalesced(more, {}); }), Told("all_reduce_coalesced", 7));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.reduce(four, {}); }), Told("reduce", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.reduce_scatter(two, halves, {}); }), Told("reduce_scatter", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b._reduce_scatter_base(two[0], four[0], {}); }),
            Told("reduce_scatter_tensor", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.reduce_scatter_tensor_coalesced(two, four, {}); }),
            Told("reduce_scatter_tensor", 4));
  at::Tensor few = at::ones({2}, at::kLong);
  at::Tensor counts = at::ones({4}, at::kLong);
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b._reduce_scatter_base(few, counts, {}); }),
            Told("reduce_scatter_tensor", 4));
}

TEST(StepWatch, SeesDataMovementAndBarriers) {
  Watched watched({0, 1});
  Tensors four{at::ones({4})};
  Tensors eight{at::ones({8})};
  TensorLists lists{{at::ones({4}), at::ones({4})}};
  std::vector<int64_t> even;
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.broadcast(four, {}); }), Told("broadcast", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.allgather(lists, four, {}); }), Told("all_gather", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b._allgather_base(eight[0], four[0], {}); }),
            Told("all_gather_into_tensor", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.allgather_coalesced(lists, four, {}); }),
            Told("all_gather_coalesced", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.allgather_into_tensor_coalesced(eight, four, {}); }),
            Told("all_gather_into_tensor_coalesced", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.gather(lists, four, {}); }), Told("gather", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.scatter(four, lists, {}); }), Told("scatter", 4));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.alltoall_base(four[0], eight[0], even, even, {}); }),
            Told("all_to_all_single", 8));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.alltoall(lists[0], lists[0], {}); }), Told("all_to_all", 8));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.barrier({}); }), Told("barrier", 0));
  EXPECT_EQ(watched.of([&](CollabBackend& b) { b.monitoredBarrier({}, false); }), Told("monitored_barrier", 0));
}

TEST(StepWatch, OnlyBetweenSitesAndInTheStepsOwnThread) {
  const TestWorld apart({0, 1});
  const TestWorld together({0, 0});
  run_ranks(2, [&](int rank) {
    int told = 0;
    const auto between = apart.backend(rank);
    const auto inside = together.backend(rank);
    for (const auto& backend : {between, inside}) {
      backend->watch_steps([&](const std::string&, std::int64_t) { ++told; });
    }
    const auto reduce = [](const c10::intrusive_ptr<CollabBackend>& backend) {
      Tensors tensors{at::ones({4})};
      backend->allreduce(tensors, {})->wait();
      EXPECT_EQ(tensors[0][0].item<float>(), 2.0F);
    };
    reduce(between);
    EXPECT_EQ(told, 0) << "no step runs";
    CollabBackend::set_in_step(true);
    reduce(inside);
    EXPECT_EQ(told, 0) << "a group inside the site";
    {
      const CommunicationHookScope hook;
      Tensors tensors{at::ones({4})};
      between->allreduce(tensors, {})->wait();
      EXPECT_EQ(told, 0) << "over the site";
    }
    std::thread(reduce, between).join();
    EXPECT_EQ(told, 0) << "another thread";
    reduce(between);
    EXPECT_EQ(told, 1);
    CollabBackend::set_in_step(false);
  });
}

TEST(StepWatch, EveryRankLearnsTheLargestNumberBroughtToABarrier) {
  const TestWorld world({0, 0, 1});
  run_ranks(3, [&](int rank) {
    const auto backend = world.backend(rank);
    EXPECT_EQ(backend->most_at_barrier(10 * rank - 7), 13);
  });
}

}  // namespace
}  // namespace collab::torch_adapter
