#include "torch/tensor_vector.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

namespace collab::torch_adapter {
namespace {

std::shared_ptr<TensorVector> vector_of(std::vector<at::Tensor> tensors) {
  auto made = TensorVector::make(std::move(tensors));
  EXPECT_TRUE(made.ok());
  return made.value();
}

std::vector<float> read_all(TensorVector& vector, std::uint64_t chunk) {
  std::vector<float> out(vector.size());
  for (std::uint64_t at = 0; at < out.size(); at += chunk) {
    const std::uint64_t n = std::min<std::uint64_t>(chunk, out.size() - at);
    EXPECT_TRUE(vector.read(at, std::span(out).subspan(at, n)).ok());
  }
  return out;
}

// One model with every kind of tensor a script may train.
std::vector<at::Tensor> mixed_model() {
  at::manual_seed(7);
  return {at::randn({4, 5}),
          at::randn({6, 7}).t(),                                               // strided
          at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),  // dense, in another order
          at::randn({9}).to(at::kHalf),
          at::randn({3, 8}).to(at::kBFloat16).t(),
          at::randn({11}).to(at::kDouble),
          at::randn({}),
          at::randn({0, 3}),
          at::randn({1, 6, 2}).transpose(1, 2)};
}

TEST(TensorVector, ReadsLogicalElementsInOrderWhateverTheChunk) {
  const auto model = mixed_model();
  std::vector<at::Tensor> flat;
  for (const auto& tensor : model) flat.push_back(tensor.reshape(-1).to(at::kFloat));
  const at::Tensor expected = at::cat(flat);
  const auto vector = vector_of(model);
  ASSERT_EQ(vector->size(), static_cast<std::uint64_t>(expected.numel()));
  for (const std::uint64_t chunk : {1, 3, 7, 50, 1000}) {
    const auto got = read_all(*vector, chunk);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected.const_data_ptr<float>()[i]) << i;
  }
}

TEST(TensorVector, WritesWhatItReadsBack) {
  for (const std::uint64_t chunk : {1, 4, 13, 1000}) {
    const auto model = mixed_model();
    const auto vector = vector_of(model);
    std::vector<float> values(vector->size());
    std::iota(values.begin(), values.end(), 0.0F);  // whole numbers below 257: exact in every type
    for (std::uint64_t at = 0; at < values.size(); at += chunk) {
      const std::uint64_t n = std::min<std::uint64_t>(chunk, values.size() - at);
      ASSERT_TRUE(vector->write(at, std::span<const float>(values).subspan(at, n)).ok());
    }
    EXPECT_EQ(read_all(*vector, 17), values);
    EXPECT_EQ(model[1].stride(0), 1) << "strides stay";
    EXPECT_EQ(model[3].scalar_type(), at::kHalf) << "types stay";
  }
}

TEST(TensorVector, LeavesOthersAlone) {
  const at::Tensor tensor = at::zeros({5, 4}).t();
  const auto vector = vector_of({tensor});
  const std::vector<float> values{1, 2, 3};
  ASSERT_TRUE(vector->write(6, values).ok());
  EXPECT_EQ(tensor.sum().item<float>(), 6.0F);
  EXPECT_EQ(tensor[1][1].item<float>(), 1.0F);
  EXPECT_EQ(tensor[1][3].item<float>(), 3.0F);
}

TEST(TensorVector, ViewsPlainMemoryOnly) {
  const at::Tensor plain = at::arange(10, at::kFloat);
  const at::Tensor half = at::zeros({4}, at::kHalf);
  const at::Tensor more = at::zeros({6});
  const auto vector = vector_of({plain, half, more});
  EXPECT_EQ(vector->view(2, 3).data(), plain.data_ptr<float>() + 2);
  EXPECT_EQ(vector->view(2, 3).size(), 3U);
  EXPECT_EQ(vector->view(0, 10).size(), 10U);
  EXPECT_TRUE(vector->view(8, 3).empty()) << "over the border of two tensors";
  EXPECT_TRUE(vector->view(10, 2).empty()) << "half precision";
  EXPECT_EQ(vector->view(14, 6).data(), more.data_ptr<float>());
  EXPECT_TRUE(vector->view(20, 1).empty()) << "behind the end";
  vector->view(2, 3)[0] = 42.0F;
  EXPECT_EQ(plain[2].item<float>(), 42.0F);
}

TEST(TensorVector, WritesLeavesThatRequireGradUnrecorded) {
  const at::Tensor leaf = at::zeros({3, 4}).t().requires_grad_();
  const at::Tensor half = at::zeros({4}, at::kHalf).requires_grad_();
  const auto version = leaf._version();
  const auto half_version = half._version();
  const auto vector = vector_of({leaf, half});
  std::vector<float> ones(vector->size(), 1.0F);
  ASSERT_TRUE(vector->write(0, ones).ok());
  ASSERT_TRUE(vector->read(0, ones).ok());
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_EQ(leaf._version(), version);
  EXPECT_EQ(half._version(), half_version);
  EXPECT_EQ(half.detach().sum().item<float>(), 4.0F);
}

TEST(TensorVector, RefusesWhatItCannotExchange) {
  const auto whole = TensorVector::make({at::zeros({2}), at::zeros({2}, at::kLong)});
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(whole.status().message().find("tensor 1"), std::string::npos) << whole.status().message();
  const auto vector = vector_of({at::zeros({4})});
  std::vector<float> five(5);
  EXPECT_EQ(vector->read(0, five).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(vector->write(3, std::span<const float>(five).first(2)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(vector->read(5, std::span(five).first(0)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(vector->read(4, std::span(five).first(0)).ok());
}

}  // namespace
}  // namespace collab::torch_adapter
