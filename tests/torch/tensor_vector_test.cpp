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

TEST(TensorVector, WritesOnlyTheElementsGiven) {
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

// What `parameter.data = other` does to a parameter.
TEST(TensorVector, FollowsATensorToNewStorage) {
  at::Tensor parameter = at::zeros({3, 2}).requires_grad_();
  const auto vector = vector_of({parameter});
  const at::Tensor other = at::ones({3, 2});
  parameter.set_data(other);
  ASSERT_TRUE(vector->check().ok());
  EXPECT_EQ(read_all(*vector, 6), std::vector<float>(6, 1.0F));
  const std::vector<float> twos(6, 2.0F);
  ASSERT_TRUE(vector->write(0, twos).ok());
  EXPECT_TRUE(at::equal(parameter.detach(), at::full({3, 2}, 2.0F)));
  EXPECT_TRUE(at::equal(other, at::full({3, 2}, 2.0F)));
}

TEST(TensorVector, NamesTheTensorsItCannotFollow) {
  const auto check = [](const at::Tensor& becomes) {
    at::Tensor weight = at::zeros({3, 2});
    auto vector = TensorVector::make({at::zeros({2}), weight}, {"bias", "weight"}).value();
    EXPECT_TRUE(vector->check().ok());
    weight.set_data(becomes);
    return vector->check().message();
  };
  EXPECT_NE(check(at::zeros({2, 2})).find("weight was Float [3, 2]"), std::string::npos) << check(at::zeros({2, 2}));
  EXPECT_NE(check(at::zeros({2, 3})).find("is Float [2, 3] now"), std::string::npos);
  EXPECT_NE(check(at::zeros({3, 2}, at::kHalf)).find("is Half [3, 2] now"), std::string::npos);
  EXPECT_EQ(check(at::zeros({2, 3}).t()), "") << "the same elements with other strides";
}

TEST(TensorVector, AnotherTensorTakesTheSamePlace) {
  const auto vector = vector_of({at::zeros({2}), at::zeros({2})});
  ASSERT_TRUE(vector->replace(1, at::ones({2})).ok());
  EXPECT_EQ(read_all(*vector, 4), (std::vector<float>{0, 0, 1, 1}));
  EXPECT_FALSE(vector->replace(1, at::ones({3})).ok());
  EXPECT_FALSE(vector->replace(1, at::ones({2}, at::kDouble)).ok());
  EXPECT_FALSE(vector->replace(2, at::ones({2})).ok());
  EXPECT_FALSE(TensorVector::make({at::zeros({2})}, {"a", "b"}).ok());
}

// The anchor is float32 whatever the parameters are: what they would be after a write counts.
TEST(TensorVector, HoldsWhatAWriteWouldNotChange) {
  const auto vector = vector_of(mixed_model());
  std::vector<float> values = read_all(*vector, vector->size());
  for (float& value : values) value *= 1.0001F;  // bfloat16 rounds some of that away
  ASSERT_TRUE(vector->write(0, values).ok());
  EXPECT_TRUE(*vector->holds(0, values));
  EXPECT_TRUE(*vector->holds(7, std::span(values).subspan(7, 60)));
  for (const std::size_t place : {std::size_t{3}, std::size_t{100}, values.size() - 1}) {
    std::vector<float> other = values;
    other[place] += 1.0F;
    EXPECT_FALSE(*vector->holds(0, other)) << place;
  }
  EXPECT_FALSE(vector->holds(1, values).ok());
}

TEST(TensorVector, AddsAndMixesInTheTypeOfEachTensor) {
  const auto vector = vector_of(mixed_model());
  std::vector<float> values(vector->size());
  std::iota(values.begin(), values.end(), -100.0F);
  const std::vector<float> before = read_all(*vector, 50);
  std::vector<float> sum = before;
  std::vector<float> mean = before;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum[i] += values[i];
    mean[i] = 0.25F * mean[i] + 0.75F * values[i];
  }
  ASSERT_TRUE(vector->add(0, values).ok());
  EXPECT_TRUE(*vector->holds(0, sum));
  ASSERT_TRUE(vector->write(0, before).ok());
  ASSERT_TRUE(vector->mix(3, std::span<const float>(values).subspan(3, 120), 0.25F).ok());
  EXPECT_TRUE(*vector->holds(3, std::span<const float>(mean).subspan(3, 120)));
  EXPECT_TRUE(*vector->holds(0, std::span<const float>(before).first(3)));
  EXPECT_TRUE(*vector->holds(123, std::span<const float>(before).subspan(123)));
}

}  // namespace
}  // namespace collab::torch_adapter
