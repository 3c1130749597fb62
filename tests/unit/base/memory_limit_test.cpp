#include "core/base/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace collab {
namespace {

namespace fs = std::filesystem;

class MemoryLimit : public ::testing::Test {
 protected:
  ~MemoryLimit() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text;
  }
  const std::string root_ = ::testing::TempDir() + "memory-limit-" + std::to_string(getpid());
  const std::uint64_t machine_ = memory_limit("/nonexistent");
};

TEST_F(MemoryLimit, IsTheMachinesIfNoControlGroupHasLess) {
  EXPECT_GT(machine_, std::uint64_t{1} << 24);
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(memory_limit(root_), machine_);
}

TEST_F(MemoryLimit, GivesEachBoundAnEighthOfASmallOne) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  EXPECT_EQ(share_of_memory(64'000 * kMiB, 64 * kMiB, 512 * kMiB), 512 * kMiB);
  EXPECT_EQ(share_of_memory(1536 * kMiB, 64 * kMiB, 512 * kMiB), 192 * kMiB);
  EXPECT_EQ(share_of_memory(256 * kMiB, 64 * kMiB, 512 * kMiB), 64 * kMiB) << "or nothing would work";
}

TEST_F(MemoryLimit, IsTheLeastOfItsGroupAndThoseAbove) {
  write("/proc/self/cgroup", "1:name=systemd:/\n0::/a.slice/b.service\n");
  write("/sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
  write("/sys/fs/cgroup/a.slice/memory.max", "2000000\n");
  EXPECT_EQ(memory_limit(root_), 2'000'000);
  write("/sys/fs/cgroup/a.slice/b.service/memory.max", "1000000\n");
  EXPECT_EQ(memory_limit(root_), 1'000'000);
}

TEST_F(MemoryLimit, IsReadFromControlGroupsOfVersionOneToo) {
  write("/proc/self/cgroup", "8:cpu,cpuacct:/c\n4:memory:/c\n0::/\n");
  write("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit(root_), machine_);
  // Inside a container its own group is the root, whatever the machine calls it.
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n");
  EXPECT_EQ(memory_limit(root_), 3'000'000);
}

}  // namespace
}  // namespace collab
