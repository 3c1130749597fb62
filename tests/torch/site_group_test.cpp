#include "torch/site_group.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/torch/threads_group.h"

namespace collab::torch_adapter {
namespace {

using collab::testing::Board;
using collab::testing::run_ranks;
using collab::testing::ThreadsGroup;

TEST(BackendSiteGroup, BroadcastsAndGathersBytes) {
  const auto board = std::make_shared<Board>(3);
  run_ranks(3, [&](int rank) {
    BackendSiteGroup group(c10::make_intrusive<ThreadsGroup>(board, rank, 3), std::chrono::milliseconds(5000));
    std::vector<std::byte> bytes(1001, std::byte(rank));
    ASSERT_TRUE(group.broadcast(bytes).ok());
    EXPECT_EQ(bytes[1000], std::byte(0));
    const std::vector<std::byte> own(2, std::byte(255 - rank));
    const auto all = group.gather_all(own);
    ASSERT_TRUE(all.ok());
    const auto [a, b, c] = std::array{std::byte(255), std::byte(254), std::byte(253)};
    EXPECT_EQ(all.value(), (std::vector{a, a, b, b, c, c}));
  });
}

TEST(BackendSiteGroup, OneRankNeedsNoGroup) {
  BackendSiteGroup group(nullptr, std::chrono::milliseconds(1));
  std::vector<std::byte> bytes(3, std::byte(7));
  EXPECT_TRUE(group.broadcast(bytes).ok());
  EXPECT_EQ(bytes[0], std::byte(7));
  EXPECT_EQ(group.gather_all(bytes).value(), bytes);
}

TEST(BackendSiteGroup, AMissingRankIsReported) {
  BackendSiteGroup group(c10::make_intrusive<ThreadsGroup>(std::make_shared<Board>(2), 0, 2),
                         std::chrono::milliseconds(50));
  const auto values = group.gather_all(std::vector<std::byte>(1));
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(values.status().message().find("rank 0 of 2"), std::string::npos) << values.status().message();
}

}  // namespace
}  // namespace collab::torch_adapter
