// Memory that is locked for parameters on a GPU. CUDA's runtime is played by the test, which exports its names.
#include "torch/page_lock.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/torch/fake_device.h"
#include "torch/tensor_vector.h"

namespace {

constexpr int kInvalidValue = 1;
constexpr unsigned kReadOnly = 8;

struct PlayedRuntime {
  std::map<const void*, std::size_t> locked;
  std::vector<int> at;   // the devices at which memory was locked and unlocked
  int errors = 0;        // that nobody has taken
  bool writable = true;  // false: memory may only be read
  bool refuses = false;
};
PlayedRuntime& played() {
  static PlayedRuntime one;
  return one;
}
void note_device() { played().at.push_back(c10::impl::VirtualGuardImpl(c10::kMeta).getDevice().index()); }

}  // namespace

extern "C" {
[[gnu::visibility("default")]] int cudaHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  const bool asks_right = played().writable || (flags & kReadOnly) != 0;
  if (played().refuses || !asks_right) {
    ++played().errors;
    return kInvalidValue;
  }
  note_device();
  played().locked[memory] = bytes;
  return 0;
}
[[gnu::visibility("default")]] int cudaHostUnregister(void* memory) {
  note_device();
  return played().locked.erase(memory) == 1 ? 0 : kInvalidValue;
}
[[gnu::visibility("default")]] int cudaGetLastError() {
  played().errors = 0;
  return 0;
}
}

namespace collab::torch_adapter {
namespace {

using Waits = std::vector<std::string>;

class PageLocks : public ::testing::Test {
 protected:
  PageLocks() { played() = {}; }
  FakeDevices devices_;
  std::vector<float> memory_ = std::vector<float>(static_cast<std::size_t>(3 * DeviceStage::kMost), 1.0F);
  std::shared_ptr<TensorVector> vector_ =
      TensorVector::make({FakeDevices::tensor(1, {3 * DeviceStage::kMost}, {1})}).value();
};

TEST_F(PageLocks, LockedPagesAreCopiedWithoutAStage) {
  {
    const std::shared_ptr<void> locked = vector_->pin_memory(memory_);
    ASSERT_NE(locked, nullptr);
    EXPECT_EQ(played().locked[memory_.data()], memory_.size() * sizeof(float));
    ASSERT_TRUE(vector_->write(0, memory_).ok());
    EXPECT_EQ(devices_.waits(), (Waits{"device 1", "stream of 1"})) << "for no half of the stage";
  }
  EXPECT_TRUE(played().locked.empty());
  EXPECT_EQ(played().at, (std::vector<int>{1, 1})) << "at device 0 it would make a context";
  ASSERT_TRUE(vector_->write(0, memory_).ok());
  EXPECT_EQ(devices_.waits(), (Waits{"device 1", "stream of 1", "device 1", "event", "stream of 1"}));
}

TEST_F(PageLocks, OtherMemoryGoesThroughTheStage) {
  const std::shared_ptr<void> locked = vector_->pin_memory(std::span(memory_).first(memory_.size() - 1));
  ASSERT_TRUE(vector_->write(0, memory_).ok());
  EXPECT_EQ(devices_.waits(), (Waits{"device 1", "stream of 1"})) << "the last part alone is staged";
  const std::vector<float> other(memory_.size());
  ASSERT_TRUE(vector_->write(0, other).ok());
  EXPECT_EQ(devices_.waits().size(), 5U);
}

TEST_F(PageLocks, ARankThatMayOnlyReadAsksForThat) {
  played().writable = false;
  EXPECT_NE(vector_->pin_memory(memory_), nullptr);
  EXPECT_EQ(played().errors, 0) << "torch would throw what is left at its next call";
}

TEST_F(PageLocks, PagesThatCannotBeLockedAreNotUsed) {
  played().refuses = true;
  EXPECT_EQ(vector_->pin_memory(memory_), nullptr);
  EXPECT_EQ(played().errors, 0);
  EXPECT_EQ(vector_->pin_memory({}), nullptr);
  ASSERT_TRUE(vector_->write(0, memory_).ok());
}

TEST_F(PageLocks, ParametersOnTheHostNeedNone) {
  const auto here = TensorVector::make({at::zeros({4})}).value();
  EXPECT_EQ(here->pin_memory(memory_), nullptr);
  EXPECT_TRUE(played().locked.empty());
}

}  // namespace
}  // namespace collab::torch_adapter
