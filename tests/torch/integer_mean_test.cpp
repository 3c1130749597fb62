// Means of integers are NCCL's: the sum, wrapped to the type, divided towards zero; over one site and over several.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "collab/torch/backend.h"
#include "tests/torch/test_world.h"
#include "torch/ordered_sum.h"

namespace collab::torch_adapter {
namespace {

using collab::testing::run_ranks;
using collab::testing::TestWorld;
using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp mean() { return c10d::ReduceOp::AVG; }

// What each rank brings: sums of both signs that do not divide evenly, and sums that leave the type.
Tensors given(int ranks, at::ScalarType type) {
  Tensors tensors;
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor small = at::arange(ranks * 3, at::kLong) * (rank % 2 == 0 ? -3 : 2) - rank;
    const at::Tensor most = at::full({ranks}, 0x7f7f7f7f7f7f7f70 + rank, at::kLong);  // large in every type
    tensors.push_back(at::cat({small, most}).view({ranks, 4}).to(type));
  }
  return tensors;
}

at::Tensor expected(const Tensors& of_ranks) {
  at::Tensor sum = of_ranks[0].clone();
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) sum.add_(of_ranks[rank]);
  return at::div(sum, static_cast<int64_t>(of_ranks.size()), "trunc").to(sum.scalar_type());
}

class IntegerMean : public ::testing::TestWithParam<std::tuple<std::vector<int>, at::ScalarType>> {};

TEST_P(IntegerMean, IsTheWrappedSumDividedTowardsZero) {
  const auto& [sites, type] = GetParam();
  const TestWorld world(sites);
  const int ranks = world.size();
  const Tensors all = given(ranks, type);
  const at::Tensor right = expected(all);
  run_ranks(ranks, [&](int rank) {
    const auto backend = world.backend(rank);
    const at::Tensor& own = all[static_cast<std::size_t>(rank)];

    Tensors reduced{own.clone()};
    c10d::AllreduceOptions opts;
    opts.reduceOp = mean();
    const auto work = backend->allreduce(reduced, opts);
    ASSERT_TRUE(work->wait());
    EXPECT_TRUE(at::equal(reduced[0], right)) << reduced[0] << right;
    EXPECT_EQ(reduced[0].scalar_type(), own.scalar_type());
    EXPECT_TRUE(work->getFuture()->value().toTensorVector()[0].is_same(reduced[0]));

    Tensors several{own.clone(), own.t().contiguous().t(), own[0].clone()};
    c10d::AllreduceCoalescedOptions together;
    together.reduceOp = mean();
    backend->allreduce_coalesced(several, together)->wait();
    EXPECT_TRUE(at::equal(several[0], right));
    EXPECT_TRUE(at::equal(several[1], right)) << "a strided tensor";
    EXPECT_TRUE(at::equal(several[2], right[0]));

    Tensors to_one{own.clone()};
    c10d::ReduceOptions to_last;
    to_last.reduceOp = mean();
    to_last.rootRank = ranks - 1;
    backend->reduce(to_one, to_last)->wait();
    EXPECT_TRUE(at::equal(to_one[0], rank == ranks - 1 ? right : own));

    c10d::ReduceScatterOptions scattered;
    scattered.reduceOp = mean();
    at::Tensor row = at::empty({4}, own.options());
    at::Tensor rows = own.clone();
    backend->_reduce_scatter_base(row, rows, scattered)->wait();
    EXPECT_TRUE(at::equal(row, right[rank]));
    EXPECT_TRUE(at::equal(rows, own)) << "inputs stay";

    Tensors output{at::empty({4}, own.options())};
    std::vector<Tensors> inputs{own.clone().unbind(0)};
    backend->reduce_scatter(output, inputs, scattered)->wait();
    EXPECT_TRUE(at::equal(output[0], right[rank]));
  });
}

INSTANTIATE_TEST_SUITE_P(Places, IntegerMean,
                         ::testing::Combine(::testing::Values(std::vector<int>{0, 0, 0}, std::vector<int>{0, 0, 1, 1},
                                                              std::vector<int>{1, 0, 1}),
                                            ::testing::Values(at::kByte, at::kChar, at::kShort, at::kInt, at::kLong)));

TEST(IntegerMean, MoreRanksThanTheTypeCanCount) {
  at::Tensor sum = at::tensor({-100, 127, -128}, at::kChar);
  divide_sum(sum, 120);
  EXPECT_TRUE(at::equal(sum, at::tensor({0, 1, -1}, at::kChar)));
  sum = at::tensor({-100, 127, -128}, at::kChar);
  divide_sum(sum, 200);
  EXPECT_TRUE(at::equal(sum, at::zeros({3}, at::kChar)));
  at::Tensor bytes = at::tensor({255, 100}, at::kByte);
  divide_sum(bytes, 2);
  EXPECT_TRUE(at::equal(bytes, at::tensor({127, 50}, at::kByte)));
}

TEST(IntegerMean, TruthValuesHaveNone) {
  for (const auto& sites : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    const auto backend = TestWorld(sites).backend(0);
    Tensors tensors{at::ones({2}, at::kBool)};
    c10d::AllreduceOptions opts;
    opts.reduceOp = mean();
    try {
      backend->allreduce(tensors, opts);
      FAIL() << "it went through";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("bool tensor cannot be averaged"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace collab::torch_adapter
