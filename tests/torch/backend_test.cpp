// The backend over ranks that are threads: what goes to whom, in which order floats are added, how errors end.
#include "collab/torch/backend.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tests/torch/test_world.h"

namespace collab::torch_adapter {
namespace {

using collab::testing::Board;
using collab::testing::run_ranks;
using collab::testing::TestWorld;
using collab::testing::ThreadsGroup;
using Tensors = std::vector<at::Tensor>;

Tensors random_tensors(int ranks, at::IntArrayRef shape, at::ScalarType type, std::uint64_t seed) {
  // Of its own: the default one is shared by the threads that play ranks.
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  Tensors tensors;
  for (int rank = 0; rank < ranks; ++rank) tensors.push_back(at::randn(shape, generator).to(type));
  return tensors;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& t) { return t.clone(at::MemoryFormat::Contiguous).view(-1).view(at::kByte); };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(bytes(a), bytes(b));
}

class SiteOrder : public ::testing::TestWithParam<std::tuple<std::vector<int>, at::ScalarType, int>> {};

TEST_P(SiteOrder, AllReduceAddsSitesInAscendingOrderAtEveryRank) {
  const auto& [sites, type, elements] = GetParam();
  const TestWorld world(sites);
  const Tensors given = random_tensors(world.size(), {elements}, type, 11);
  const at::Tensor expected = world.ordered_sum(given);
  run_ranks(world.size(), [&](int rank) {
    const auto backend = world.backend(rank);
    const at::Tensor tensor = given[static_cast<std::size_t>(rank)].clone();
    Tensors tensors{tensor};
    const auto work = backend->allreduce(tensors, {});
    ASSERT_TRUE(work->wait());
    EXPECT_TRUE(same_bits(tensor, expected)) << "rank " << rank;
    EXPECT_TRUE(work->isSuccess());
    EXPECT_TRUE(work->result()[0].is_same(tensor));
    EXPECT_TRUE(work->getFuture()->value().toTensorVector()[0].is_same(tensor));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Places, SiteOrder,
    ::testing::Combine(::testing::Values(std::vector<int>{0, 0, 1, 1}, std::vector<int>{1, 0, 1, 0, 0},
                                         std::vector<int>{4, 2, 9}, std::vector<int>{0, 1, 1, 2, 2, 2}),
                       ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble),
                       ::testing::Values(1, 5, 40'001)));  // sent whole, and in shares that do not divide evenly

TEST(CollabBackend, OtherReductionsFollowTheSameOrder) {
  const TestWorld world({0, 0, 2, 2, 1});
  const Tensors given = random_tensors(5, {5, 3}, at::kFloat, 3);
  const at::Tensor sum = world.ordered_sum(given);
  run_ranks(5, [&](int rank) {
    const auto backend = world.backend(rank);
    const at::Tensor& own = given[static_cast<std::size_t>(rank)];

    Tensors mean{own.clone()};
    c10d::AllreduceOptions average;
    average.reduceOp = c10d::ReduceOp::AVG;
    backend->allreduce(mean, average)->wait();
    EXPECT_TRUE(same_bits(mean[0], sum / 5));

    Tensors several{own.clone(), own.t().contiguous().t(), own[0].clone()};
    backend->allreduce_coalesced(several, {})->wait();
    EXPECT_TRUE(same_bits(several[0], sum));
    EXPECT_TRUE(same_bits(several[1], sum)) << "a strided tensor";
    EXPECT_TRUE(same_bits(several[2], sum[0]));

    const at::Tensor one = own.clone().select(1, 1).narrow(0, 3, 1);  // contiguous, with a stride of 3
    Tensors single{one};
    backend->allreduce(single, {})->wait();
    EXPECT_TRUE(same_bits(one, sum.select(1, 1).narrow(0, 3, 1)));

    c10d::ReduceOptions to_two;
    to_two.rootRank = 2;
    Tensors reduced{own.clone()};
    backend->reduce(reduced, to_two)->wait();
    EXPECT_TRUE(same_bits(reduced[0], rank == 2 ? sum : own));

    at::Tensor row = at::empty({3});
    at::Tensor rows = own.clone();
    backend->_reduce_scatter_base(row, rows, {})->wait();
    EXPECT_TRUE(same_bits(row, sum[rank]));
    EXPECT_TRUE(same_bits(rows, own)) << "inputs stay";

    Tensors output{at::empty({3})};
    std::vector<Tensors> inputs{own.unbind(0)};
    backend->reduce_scatter(output, inputs, {})->wait();
    EXPECT_TRUE(same_bits(output[0], sum[rank]));

    Tensors outs{at::empty({3}), at::empty({1})};
    Tensors ins{own.clone(), own.select(1, 1).clone()};
    backend->reduce_scatter_tensor_coalesced(outs, ins, {})->wait();
    EXPECT_TRUE(same_bits(outs[0], sum[rank]));
    EXPECT_TRUE(same_bits(outs[1], sum.select(1, 1).narrow(0, rank, 1)));
  });
}

TEST(CollabBackend, UnorderedCallsGoToTheWorldsGroup) {
  const TestWorld world({0, 0, 1});
  run_ranks(3, [&](int rank) {
    const auto backend = world.backend(rank);
    const auto before = backend->getSequenceNumberForGroup();
    Tensors counts{at::full({4}, rank + 1, at::kLong)};
    backend->allreduce(counts, {})->wait();
    EXPECT_EQ(counts[0][0].item<int64_t>(), 6);
    c10d::AllreduceOptions most;
    most.reduceOp = c10d::ReduceOp::MAX;
    Tensors floats{at::full({4}, static_cast<float>(rank))};
    backend->allreduce(floats, most)->wait();
    EXPECT_EQ(floats[0][0].item<float>(), 2.0F);
    EXPECT_EQ(backend->getSequenceNumberForGroup(), before + 2);
    Tensors sum{at::ones({4})};
    backend->allreduce(sum, {})->wait();
    EXPECT_EQ(backend->getSequenceNumberForGroup(), before + 3) << "ordered sums count, too";
  });
}

TEST(CollabBackend, OneSiteIsTheWorldsGroupItself) {
  const TestWorld world({3, 3});
  run_ranks(2, [&](int rank) {
    const auto backend = world.backend(rank);
    EXPECT_TRUE(backend->single_site());
    const Tensors given = random_tensors(2, {6}, at::kFloat, 5);
    Tensors tensors{given[static_cast<std::size_t>(rank)].clone()};
    backend->allreduce(tensors, {})->wait();
    EXPECT_TRUE(same_bits(tensors[0], given[0] + given[1]));
  });
}

TEST(CollabBackend, LeavesOfAutogradAreReducedLikeMemory) {
  const TestWorld world({0, 1});
  run_ranks(2, [&](int rank) {
    const auto backend = world.backend(rank);
    const at::Tensor leaf = at::full({3}, static_cast<float>(rank)).requires_grad_();
    const auto version = leaf._version();
    Tensors tensors{leaf};
    backend->allreduce(tensors, {})->wait();
    EXPECT_EQ(leaf.detach()[0].item<float>(), 1.0F);
    EXPECT_TRUE(leaf.is_leaf());
    EXPECT_EQ(leaf._version(), version);
  });
}

TEST(CollabBackend, ABarrierIsBehindTheSumsBeforeIt) {
  const TestWorld world({0, 1});
  run_ranks(2, [&](int rank) {
    const auto backend = world.backend(rank);
    int called = 0;
    backend->set_pre_barrier([&] { ++called; });
    Tensors tensors{at::ones({1000})};
    const auto sum = backend->allreduce(tensors, {});
    backend->barrier({})->wait();
    EXPECT_TRUE(sum->isCompleted()) << "rank " << rank;
    EXPECT_EQ(called, 1);
    backend->set_pre_barrier(nullptr);
    backend->barrier({})->wait();
    EXPECT_EQ(called, 1);
  });
}

// A callback that starts a collective and waits for it, as PowerSGD's do, on the worker or on the caller.
TEST(CollabBackend, CallbacksMayWaitForCollectivesOfTheirOwn) {
  const TestWorld world({0, 1, 1});
  run_ranks(3, [&](int rank) {
    const auto backend = world.backend(rank);
    for (int round = 0; round < 20; ++round) {
      Tensors first{at::full({100}, 1.0F)};
      Tensors second{at::full({100}, 1.0F)};
      Tensors third{at::full({100}, 10.0F)};
      auto future = backend->allreduce(first, {})->getFuture();
      auto chained = future->then(
          [&](c10::ivalue::Future&) {
            second[0].copy_(first[0]);
            backend->allreduce(second, {})->getFuture()->wait();
            return c10::IValue(true);
          },
          c10::BoolType::get());
      const auto last = backend->allreduce(third, {});
      chained->wait();
      last->wait();
      ASSERT_EQ(second[0][0].item<float>(), 9.0F);
      ASSERT_EQ(third[0][0].item<float>(), 30.0F);
    }
  });
}

TEST(CollabBackend, ErrorsNameTheCollectiveTheRankAndTheStep) {
  const TestWorld world({0, 1});
  const auto backend = world.backend(0);
  EXPECT_EQ(backend->getError(), c10d::ErrorType::SUCCESS);
  Tensors tensors{at::ones({3})};
  c10d::AllreduceOptions opts;
  opts.timeout = std::chrono::milliseconds(50);
  const auto work = backend->allreduce(tensors, opts);  // rank 1 never comes
  try {
    work->wait();
    FAIL() << "the wait ended well";
  } catch (const c10::DistBackendError& e) {
    const std::string text = e.what_without_backtrace();
    for (const auto* part : {"all_reduce", "rank 0 of 2", "site 0", "leaders", "timed out"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  }
  EXPECT_FALSE(work->isSuccess());
  EXPECT_TRUE(work->getFuture()->hasError());
  EXPECT_EQ(backend->getError(), c10d::ErrorType::COMM_ERROR);
}

TEST(CollabBackend, WaitHasALimitOfItsOwn) {
  const TestWorld world({0, 1});
  const auto backend = world.backend(0);
  Tensors tensors{at::ones({3})};
  c10d::AllreduceOptions opts;
  opts.timeout = std::chrono::milliseconds(1500);
  const auto work = backend->allreduce(tensors, opts);
  EXPECT_THROW(work->wait(std::chrono::milliseconds(20)), c10::DistBackendError);
  EXPECT_FALSE(work->isCompleted());
}

TEST(CollabBackend, ContradictionsAreRefused) {
  const TestWorld world({0, 1});
  const auto board = std::make_shared<Board>(2);
  BackendOptions options;
  options.size = 2;
  options.sites = {0, 1};
  options.world = c10::make_intrusive<ThreadsGroup>(board, 0, 2);
  EXPECT_THROW(CollabBackend{options}, c10::Error) << "a leader without leaders";
  options.leaders = c10::make_intrusive<ThreadsGroup>(board, 1, 2);
  EXPECT_THROW(CollabBackend{options}, c10::Error) << "another place among the leaders";
  options.leaders = c10::make_intrusive<ThreadsGroup>(board, 0, 2);
  EXPECT_NO_THROW(CollabBackend{options});
  options.sites = {0};
  EXPECT_THROW(CollabBackend{options}, c10::Error) << "a site map of another length";
}

TEST(CollabBackend, ShutDownFinishesWhatWasIssued) {
  const TestWorld world({0, 1});
  run_ranks(2, [&](int rank) {
    const auto backend = world.backend(rank);
    Tensors tensors{at::ones({100'000})};
    const auto work = backend->allreduce(tensors, {});
    backend->shutdown();
    EXPECT_TRUE(work->isCompleted());
    EXPECT_EQ(tensors[0][7].item<float>(), 2.0F);
    EXPECT_THROW(backend->allreduce(tensors, {}), c10::Error);
  });
}

}  // namespace
}  // namespace collab::torch_adapter
