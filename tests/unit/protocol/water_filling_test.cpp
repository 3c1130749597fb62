// Shares by rates: the special cases, their traffic as the slice table makes it, and a search that knows no formula.
#include "core/protocol/allocation/water_filling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/prng.h"
#include "tests/unit/protocol/least_exchange_time.h"

namespace collab::protocol {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::Pointwise;

Line line(std::uint32_t site, double up, double down) { return {SiteId{site}, up, down}; }

std::vector<Line> alike(std::uint32_t sites, double up, double down) {
  std::vector<Line> lines;
  for (std::uint32_t i = 0; i < sites; ++i) lines.push_back(line(i, up, down));
  return lines;
}

std::vector<double> values(const std::vector<Share>& shares) {
  std::vector<double> found;
  for (const Share& share : shares) found.push_back(share.share);
  return found;
}

// Bytes from one site to another as the slices say, in units of a whole encoded delta.
using Matrix = std::vector<std::vector<double>>;
Matrix traffic(const std::vector<Line>& lines, const std::vector<Share>& shares, double mean_ratio) {
  constexpr std::uint64_t kElements = 64'000'000;
  Matrix matrix(lines.size(), std::vector<double>(lines.size()));
  for (const wire::Slice& slice : make_slices({0, kElements}, shares)) {
    const double part = static_cast<double>(slice.range.size()) / kElements;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto owner = static_cast<std::size_t>(
          std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.site == slice.owner; }) -
          lines.begin());
      if (i == owner) continue;
      if (lines[i].contributes) matrix[i][owner] += part;
      matrix[owner][i] += mean_ratio * part;
    }
  }
  return matrix;
}

void expect_the_formulas_traffic(const std::vector<Line>& lines, const std::vector<Share>& shares, double ratio) {
  const Matrix matrix = traffic(lines, shares, ratio);
  const std::vector<Volume> expected = volumes(lines, shares, ratio);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    double down = 0;
    for (const auto& row : matrix) down += row[i];
    EXPECT_NEAR(std::accumulate(matrix[i].begin(), matrix[i].end(), 0.0), expected[i].up, 0.01 * expected[i].up + 0.01);
    EXPECT_NEAR(down, expected[i].down, 0.01 * expected[i].down + 0.01);
  }
}

TEST(WaterFilling, EqualRatesGiveAnAllReduce) {
  for (const std::uint32_t sites : {1U, 2U, 3U, 5U, 8U, 64U}) {
    const std::vector<Line> lines = alike(sites, 100, 100);
    const auto shares = fill_lines(lines, 1);
    EXPECT_THAT(values(shares), Each(DoubleNear(1.0 / sites, 1e-12)));
    if (sites < 2) continue;
    const Matrix matrix = traffic(lines, shares, 1);
    for (std::size_t i = 0; i < sites; ++i) {
      for (std::size_t j = 0; j < sites; ++j) EXPECT_NEAR(matrix[i][j], i == j ? 0 : 2.0 / sites, 0.01);
    }
    expect_the_formulas_traffic(lines, shares, 1);
    EXPECT_NEAR(exchange_time(lines, shares, 1), least_exchange_time(lines, 1), 1e-12);
  }
}

TEST(WaterFilling, OneFastMachineAmongThinOnesIsAParameterServer) {
  std::vector<Line> lines = alike(8, 10, 10);
  lines[3] = line(3, 1000, 1000);
  const auto shares = fill_lines(lines, 1);
  EXPECT_THAT(values(shares), Pointwise(DoubleNear(1e-12), {0, 0, 0, 1, 0, 0, 0, 0}));
  const Matrix matrix = traffic(lines, shares, 1);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) EXPECT_EQ(matrix[i][j], i != j && (i == 3 || j == 3) ? 1 : 0);
  }
  expect_the_formulas_traffic(lines, shares, 1);
  EXPECT_NEAR(exchange_time(lines, shares, 1), least_exchange_time(lines, 1), 1e-12);
}

TEST(WaterFilling, MixedRatesGiveAHybrid) {
  const std::vector<Line> lines{line(0, 200, 200), line(1, 250, 250), line(2, 300, 300), line(3, 5, 50)};
  const auto shares = fill_lines(lines, 1);
  EXPECT_EQ(shares[3].share, 0);
  EXPECT_NEAR(shares[0].share, 1.0 / 6, 1e-12);
  EXPECT_NEAR(shares[1].share, 2.0 / 6, 1e-12);
  EXPECT_NEAR(shares[2].share, 3.0 / 6, 1e-12);
  const Matrix matrix = traffic(lines, shares, 1);
  EXPECT_EQ(matrix[0][3] + matrix[1][3] + matrix[2][3], 1) << "the thin one only takes the mean";
  EXPECT_EQ(matrix[3][0] + matrix[3][1] + matrix[3][2], 1);
  expect_the_formulas_traffic(lines, shares, 1);
  // The three that own are done at once, long before the thin one is.
  const std::vector<Volume> of = volumes(lines, shares, 1);
  EXPECT_NEAR(of[0].up / 200, of[1].up / 250, 1e-12);
  EXPECT_NEAR(of[0].up / 200, of[2].up / 300, 1e-12);
  EXPECT_EQ(exchange_time(lines, shares, 1), 1.0 / 5);
}

TEST(WaterFilling, ExchangesOfTwoSymmetricLinesTakeTheSameTimeForAllShares) {
  const std::vector<Line> lines{line(0, 10, 10), line(1, 80, 80)};
  EXPECT_THAT(values(fill_lines(lines, 1)), Pointwise(DoubleNear(1e-12), {0.5, 0.5}));
  EXPECT_EQ(least_exchange_time(lines, 1), 0.1);
  for (const double share : {0.0, 0.3, 1.0}) {
    const std::vector<Share> any{{SiteId{0}, share}, {SiteId{1}, 1 - share}};
    EXPECT_NEAR(exchange_time(lines, any, 1), 0.1, 1e-12);
  }
}

TEST(WaterFilling, ASiteThatCannotBeDialledOwnsNothing) {
  std::vector<Line> lines = alike(3, 100, 100);
  lines[0].may_own = lines[2].may_own = false;
  EXPECT_THAT(values(fill_lines(lines, 1)), Pointwise(DoubleNear(1e-12), {0, 1, 0}));
  for (Line& each : lines) each.may_own = false;
  EXPECT_TRUE(fill_lines(lines, 1).empty());
}

TEST(WaterFilling, AHelperCarriesAllForTwoThatCannotBeDialled) {
  std::vector<Line> lines = alike(3, 20, 100);
  lines[0].may_own = lines[1].may_own = false;
  lines[2] = {SiteId{2}, 1000, 1000, false, true};
  const auto shares = fill_lines(lines, 1);
  EXPECT_THAT(values(shares), Pointwise(DoubleNear(1e-12), {0, 0, 1}));
  EXPECT_EQ(traffic(lines, shares, 1), (Matrix{{0, 0, 1}, {0, 0, 1}, {1, 1, 0}}));
  expect_the_formulas_traffic(lines, shares, 1);
}

TEST(WaterFilling, CheapMeansMoveTheLoadToTheWayUp) {
  // With means a quarter as large owning costs the way in more than the way out.
  const std::vector<Line> lines = alike(4, 20, 100);
  const auto shares = fill_lines(lines, 0.25);
  EXPECT_THAT(values(shares), Each(DoubleNear(0.25, 1e-12)));
  expect_the_formulas_traffic(lines, shares, 0.25);
  EXPECT_NEAR(volumes(lines, shares, 0.25)[0].up, 0.75 + 3 * 0.25 * 0.25, 1e-12);
}

// No shares on a fine grid are faster, and none at all can beat the bound.
TEST(WaterFilling, NoGridFindsBetterShares) {
  Prng prng(20260);
  constexpr int kGrid = 30;
  for (int round = 0; round < 400; ++round) {
    const auto sites = static_cast<std::uint32_t>(2 + prng.below(3));
    const double ratio = std::vector<double>{0.25, 0.5, 1, 2}[prng.below(4)];
    std::vector<Line> lines;
    for (std::uint32_t i = 0; i < sites; ++i) {
      const auto rate = [&] {
        return std::vector<double>{1, 5, 10, 20, 100, 1000}[prng.below(6)] * (1 + prng.uniform());
      };
      lines.push_back({SiteId{i}, rate(), rate(), i < 2 || prng.chance(0.7), prng.chance(0.8)});
    }
    lines[prng.below(sites)].may_own = true;
    const auto shares = fill_lines(lines, ratio);
    double total = 0;
    for (std::size_t i = 0; i < sites; ++i) {
      EXPECT_GE(shares[i].share, 0);
      EXPECT_TRUE(lines[i].may_own || shares[i].share == 0);
      total += shares[i].share;
    }
    EXPECT_NEAR(total, 1, 1e-12);
    const double time = exchange_time(lines, shares, ratio);
    EXPECT_GE(time, least_exchange_time(lines, ratio) * (1 - 1e-9));
    const auto search = [&](const auto& self, std::vector<Share> tried, int left) -> void {
      const std::size_t i = tried.size();
      if (i + 1 == sites) {
        if (left > 0 && !lines[i].may_own) return;
        tried.push_back({lines[i].site, static_cast<double>(left) / kGrid});
        ASSERT_GE(exchange_time(lines, tried, ratio), time * (1 - 1e-9)) << "round " << round;
        return;
      }
      for (int part = 0; part <= (lines[i].may_own ? left : 0); ++part) {
        std::vector<Share> next = tried;
        next.push_back({lines[i].site, static_cast<double>(part) / kGrid});
        self(self, std::move(next), left - part);
      }
    };
    search(search, {}, kGrid);
  }
}

TEST(WaterFilling, ThousandsOfSitesAreFilledToOneLevel) {
  Prng prng(7);
  std::vector<Line> lines;
  for (std::uint32_t i = 0; i < 4096; ++i) lines.push_back(line(i, 1 + 999 * prng.uniform(), 1 + 999 * prng.uniform()));
  const auto shares = fill_lines(lines, 1);
  const std::vector<Volume> of = volumes(lines, shares, 1);
  double level = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (shares[i].share == 0) continue;
    const double time = std::max(of[i].up / lines[i].up, of[i].down / lines[i].down);
    if (level == 0) level = time;
    EXPECT_NEAR(time, level, 1e-9 * level);
  }
}

}  // namespace
}  // namespace collab::protocol
