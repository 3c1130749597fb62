#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "collab/transport.h"
#include "core/base/prng.h"

namespace collab {
namespace {

TEST(BufferPool, HandsOutAlignedMemoryOfTheSizeAskedFor) {
  const auto pool = make_buffer_pool();
  for (const std::size_t size : {0U, 1U, 63U, 4096U, 4097U, 100'000U, 262'144U, 1'000'003U}) {
    const BufferPtr buffer = pool->take(size);
    EXPECT_EQ(buffer->bytes().size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->bytes().data()) % 64, 0U);
    std::ranges::fill(buffer->bytes(), std::byte{0xA5});
  }
}

TEST(BufferPool, UsesReleasedMemoryAgain) {
  const auto pool = make_buffer_pool();
  BufferPtr first = pool->take(1'000'000);
  const auto* const memory = first->bytes().data();
  const std::size_t held = pool->bytes_held();
  first.reset();
  EXPECT_EQ(pool->bytes_held(), held);
  EXPECT_EQ(pool->take(999'000)->bytes().data(), memory) << "a short last chunk fits the buffer of a full one";
  EXPECT_EQ(pool->bytes_held(), held);
}

TEST(BufferPool, WastesAtMostAFifth) {
  for (std::size_t size = 5000; size < 3'000'000; size += 7919) {
    const auto pool = make_buffer_pool();
    const BufferPtr buffer = pool->take(size);
    EXPECT_GE(pool->bytes_held(), size);
    EXPECT_LE(pool->bytes_held(), size + size / 4);
  }
}

// Buffers never overlap, and what the pool holds never passes what was in use at once.
TEST(BufferPool, HoldsAtMostThePeakInUse) {
  const auto pool = make_buffer_pool();
  Prng prng(42);
  std::vector<std::pair<BufferPtr, std::byte>> live;
  std::size_t peak_held_while_all_live = 0;
  for (int step = 0; step < 3000; ++step) {
    const bool grow = live.empty() || (live.size() < 20 && prng.chance(0.5));
    if (grow) {
      const std::size_t kept_before = pool->bytes_held();
      const auto mark = static_cast<std::byte>(step);
      live.emplace_back(pool->take(1 + prng.below(600'000)), mark);
      std::ranges::fill(live.back().first->bytes(), mark);
      std::size_t in_use = 0;
      for (const auto& [buffer, _] : live) in_use += buffer->bytes().size();
      // In classes a buffer is at most twice what was asked for, when a kept one is used again.
      peak_held_while_all_live = std::max(peak_held_while_all_live, in_use);
      EXPECT_LE(pool->bytes_held(), std::max(kept_before, 2 * peak_held_while_all_live + 20 * 4096));
    } else {
      const std::size_t pick = prng.below(live.size());
      const auto [buffer, mark] = live[pick];
      EXPECT_TRUE(std::ranges::all_of(buffer->bytes(), [mark = mark](std::byte b) { return b == mark; }));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
    }
  }
}

TEST(BufferPool, MakesRoomForAnotherSizeFromWhatIsKept) {
  const auto pool = make_buffer_pool();
  pool->take(8 << 20).reset();
  const std::size_t peak = pool->bytes_held();
  const BufferPtr small = pool->take(1 << 20);  // eight times smaller: the kept one does not serve it
  EXPECT_LE(pool->bytes_held(), peak);
}

TEST(BufferPool, TrimGivesBackAllThatIsNotInUse) {
  const auto pool = make_buffer_pool();
  const BufferPtr used = pool->take(5000);
  const std::size_t in_use = pool->bytes_held();
  pool->take(1 << 20).reset();
  EXPECT_GT(pool->bytes_held(), in_use);
  pool->trim();
  EXPECT_EQ(pool->bytes_held(), in_use);
}

// As after a burst: half each time, and nothing is left in the end.
TEST(BufferPool, UnusedBuffersAreFreedBitByBit) {
  const auto pool = make_buffer_pool();
  std::vector<BufferPtr> burst;
  for (int i = 0; i < 64; ++i) burst.push_back(pool->take(1 << 20));
  pool->trim_idle();
  burst.clear();
  pool->trim_idle();
  EXPECT_EQ(pool->bytes_held(), 64U << 20) << "it was in use since the last call";
  pool->trim_idle();
  EXPECT_EQ(pool->bytes_held(), 32U << 20);
  pool->trim_idle();
  EXPECT_EQ(pool->bytes_held(), 16U << 20);
  for (int i = 0; i < 8; ++i) pool->trim_idle();
  EXPECT_EQ(pool->bytes_held(), 0U);
}

TEST(BufferPool, BuffersInRegularUseStay) {
  const auto pool = make_buffer_pool();
  pool->take(16 << 20).reset();
  pool->take(3 << 20).reset();
  const std::byte* const memory = pool->take(1 << 20)->bytes().data();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(pool->take(1 << 20)->bytes().data(), memory);
    pool->trim_idle();
  }
  EXPECT_EQ(pool->bytes_held(), 1U << 20);
}

[[nodiscard]] std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(BufferPool, FreedBuffersReturnToTheSystem) {
  const auto pool = make_buffer_pool();
  const std::size_t before = resident_bytes();
  std::vector<BufferPtr> burst;
  for (int i = 0; i < 8; ++i) {
    burst.push_back(pool->take(8 << 20));
    std::ranges::fill(burst.back()->bytes(), std::byte{1});
  }
  EXPECT_GT(resident_bytes(), before + (60U << 20));
  burst.clear();
  for (int i = 0; i < 12; ++i) pool->trim_idle();
  EXPECT_LT(resident_bytes(), before + (8U << 20));
}

// The flags that the system has for the memory at this address.
std::string flags_at(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= wanted && wanted < end;
    if (here && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

// Where the system backs all memory with huge pages, a byte would cost two megabytes.
TEST(BufferPool, LargeBuffersAreOfSmallPages) {
  const BufferPtr buffer = make_buffer_pool()->take(std::size_t{8} << 20);
  EXPECT_NE(flags_at(buffer->bytes().data()).find(" nh"), std::string::npos);
}

TEST(BufferPool, BuffersOutliveThePool) {
  auto pool = make_buffer_pool();
  const BufferPtr buffer = pool->take(300'000);
  pool->take(100).reset();
  pool.reset();
  std::ranges::fill(buffer->bytes(), std::byte{1});
  EXPECT_EQ(buffer->bytes()[299'999], std::byte{1});
}

}  // namespace
}  // namespace collab
