// What is kept across restarts of a coordinator.
#include "tools/page/leaderboard.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace collab::page {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LeaderboardTest : public testing::Test {
 protected:
  LeaderboardTest() { std::filesystem::create_directory(folder_); }
  ~LeaderboardTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("collab_leaderboard_" + std::to_string(::getpid()));
  const std::string path_ = folder_ / "board";
};

TEST_F(LeaderboardTest, AddsUpWhatCoordinatorsHaveCounted) {
  Leaderboard first = Leaderboard::open(path_).value();
  static_cast<void>(first.with({{"paris", 10, 1}}));
  static_cast<void>(first.with({{"rome of old", 64, 2}, {"paris", 20, 2}}));
  ASSERT_TRUE(first.save().ok());
  EXPECT_EQ(text(), "collab leaderboard 1\n64 2 rome of old\n20 2 paris\n");
  Leaderboard second = Leaderboard::open(path_).value();
  EXPECT_THAT(second.with({}), ElementsAre(Contributed{"rome of old", 64, 2}, Contributed{"paris", 20, 2}));
  EXPECT_THAT(second.with({{"paris", 50, 1}}),
              ElementsAre(Contributed{"paris", 70, 3}, Contributed{"rome of old", 64, 2}));
  EXPECT_THAT(second.with({{"paris", 60, 2}}), testing::Contains(Contributed{"paris", 80, 4})) << "not twice";
  ASSERT_TRUE(second.save().ok());
  EXPECT_EQ(text(), "collab leaderboard 1\n80 4 paris\n64 2 rome of old\n");
}

TEST_F(LeaderboardTest, ALeaderboardWithoutAFileWritesNothing) {
  Leaderboard board = Leaderboard::open("").value();
  EXPECT_THAT(board.with({{"paris", 10, 1}}), ElementsAre(Contributed{"paris", 10, 1}));
  EXPECT_TRUE(board.save().ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(LeaderboardTest, AnotherFileIsLeftAsItIs) {
  for (const std::string content :
       {"", "my thesis\n", "collab leaderboard 1\n12 paris\n", "collab leaderboard 1\n1 1 \n",
        "collab leaderboard 1\n-x 1 paris\n", "collab leaderboard 1\n1 1 \x1b[2J\n"}) {
    std::ofstream(path_) << content;
    const Result<Leaderboard> board = Leaderboard::open(path_);
    ASSERT_FALSE(board.ok()) << content;
    EXPECT_THAT(board.status().message(), HasSubstr("[page.leaderboard-unfit]"));
    EXPECT_EQ(text(), content);
  }
}

TEST_F(LeaderboardTest, AFailedWriteIsReported) {
  Leaderboard board = Leaderboard::open(folder_ / "no folder" / "board").value();
  static_cast<void>(board.with({{"paris", 10, 1}}));
  EXPECT_THAT(board.save().message(), HasSubstr("[page.leaderboard-not-written]"));
}

TEST_F(LeaderboardTest, SampleCountsDoNotWrapAround) {
  std::ofstream(path_) << "collab leaderboard 1\n18446744073709551615 1 paris\n";
  EXPECT_THAT(Leaderboard::open(path_).value().with({{"paris", 5, 1}}),
              ElementsAre(Contributed{"paris", UINT64_MAX, 2}));
}

TEST_F(LeaderboardTest, DropsTheNamesWithTheLeastWhenThereAreTooMany) {
  std::vector<Contributed> counted;
  for (std::uint64_t i = 0; i < Leaderboard::kMaxNames + 5; ++i) counted.push_back({"site " + std::to_string(i), i, 1});
  Leaderboard board = Leaderboard::open(path_).value();
  EXPECT_EQ(board.with(counted).size(), Leaderboard::kMaxNames);
  EXPECT_EQ(board.with(counted).back().samples, 5U);
}

}  // namespace
}  // namespace collab::page
