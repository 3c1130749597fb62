// What the adapter does with an accelerator, seen from one that is not there.
#include "torch/device.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/torch/fake_device.h"
#include "torch/staging.h"
#include "torch/tensor_vector.h"
#include "torch/work.h"

namespace collab::torch_adapter {
namespace {

using Waits = std::vector<std::string>;
using Contexts = std::set<int>;

TEST(Device, HostMemoryHasNothingToWaitFor) {
  const FakeDevices devices;
  wait_for_device(at::kCPU);
  wait_for_stream(at::kCPU);
  const c10::DeviceGuard here(at::kCPU);
  EXPECT_TRUE(devices.waits().empty());
}

// The round behind the training has a thread of its own.
TEST(Device, AThreadThatReadsTheModelMakesNoContextElsewhere) {
  const FakeDevices devices;
  const at::Tensor strided = FakeDevices::tensor(1, {3, 4}, {1, 3});
  const auto vector = TensorVector::make({strided}).value();
  std::thread([&] {
    const std::vector<float> values(12, 1.0F);
    EXPECT_TRUE(vector->write(0, values).ok());
    EXPECT_EQ(devices.getDevice().index(), 0) << "the thread goes back to where it was";
  }).join();
  EXPECT_EQ(devices.contexts(), Contexts{1});
}

TEST(Device, AWriteIsOverWhenItReturns) {
  for (const std::size_t elements : {12U, 8U, 1U}) {
    const FakeDevices devices;
    const auto vector = TensorVector::make({FakeDevices::tensor(1, {3, 4}, {1, 3})}).value();
    const std::vector<float> values(elements, 1.0F);
    ASSERT_TRUE(vector->write(0, values).ok());
    EXPECT_EQ(devices.waits(), (Waits{"device 1", "stream of 1"}));
  }
}

// While the device copies one, the host fills the other.
TEST(Device, HalvesOfTheStageTakeTurns) {
  const FakeDevices devices;
  const auto elements = 3 * DeviceStage::kMost;
  const auto vector = TensorVector::make({FakeDevices::tensor(1, {elements}, {1})}).value();
  EXPECT_EQ(vector->tile(), static_cast<std::uint64_t>(DeviceStage::kMost));
  const std::vector<float> values(static_cast<std::size_t>(elements), 1.0F);
  ASSERT_TRUE(vector->write(0, values).ok());
  EXPECT_EQ(devices.waits(), (Waits{"device 1", "event", "stream of 1"})) << "the third waits for the first";
  EXPECT_EQ(devices.contexts(), Contexts{1});
}

TEST(Device, TheQueuesThreadMakesNoContextElsewhere) {
  const FakeDevices devices;
  int during = -1;
  WorkQueue queue;
  const at::Tensor result = FakeDevices::tensor(1, {4}, {1});
  const auto work = c10::make_intrusive<QueuedWork>(
      "a collective", 0, c10d::OpType::ALLREDUCE, QueuedWork::Results{{result}},
      [&] { during = devices.getDevice().index(); }, false);
  queue.post(work, [] {});
  work->wait();
  queue.stop();
  EXPECT_EQ(during, 1);
  EXPECT_EQ(devices.contexts(), Contexts{1}) << "events are recorded when the future is completed";
}

TEST(Device, OutputsOfACollectiveAreNotCopiedOut) {
  const FakeDevices devices;
  Staging staging;
  const at::Tensor output = FakeDevices::tensor(1, {3, 4}, {1, 3});
  const at::Tensor host = staging.output(output);  // a copy from a `meta` tensor would throw
  EXPECT_TRUE(host.device().is_cpu());
  EXPECT_EQ(host.strides(), output.strides());
  EXPECT_EQ(devices.waits(), Waits{"stream of 1"}) << "what reads the old values comes first";
  EXPECT_TRUE(staging.used());
  staging.copy_back();
  EXPECT_EQ(devices.waits(), (Waits{"stream of 1", "stream of 1"}));
  EXPECT_EQ(devices.contexts(), (Contexts{1}));
}

TEST(Device, HostTensorsAreNotStaged) {
  Staging staging;
  const at::Tensor host = at::zeros({2});
  EXPECT_TRUE(staging.output(host).is_same(host));
  EXPECT_TRUE(staging.in_place(host).is_same(host));
  EXPECT_FALSE(staging.used());
}

}  // namespace
}  // namespace collab::torch_adapter
