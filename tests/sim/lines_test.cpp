// How long exchanges take over lines of different speed, with the protocol's own code, against what no shares at all
// could do better than.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "tests/sim/sim_coordinator.h"
#include "tests/unit/protocol/least_exchange_time.h"

namespace collab::sim {
namespace {

struct Rates {  // Mbit/s
  double up = 0;
  double down = 0;
};

struct Exchanges {
  std::vector<double> seconds;  // of each round's exchange, from the first site that begins to the last that is done
  double least = 0;
  std::string status;
};

Exchanges exchange_over(const std::vector<Rates>& rates, bool equal) {
  constexpr std::uint64_t kElements = 1 << 19;
  constexpr double kMbit = 1e6 / 8;
  constexpr std::uint32_t kRounds = 6;
  const auto quiet = [](const std::string&, const std::string&) {};
  Network network({.delay_min = Duration(1'000), .delay_mean = Duration(1'000)}, 1);
  Checkers checkers;
  protocol::CoordinatorConfig config;
  config.swarm = "sim";
  config.fresh_run = RunId{1000};
  config.equal_shares = equal;
  SimCoordinator coordinator(config, "c0.1", "c0:1", Mutation::kNone, network, checkers, quiet);
  std::vector<std::unique_ptr<SimSite>> sites;
  std::vector<protocol::Line> lines;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    SimSiteOptions options;
    options.name = "site" + std::to_string(i);
    options.process = options.name + ".1";
    options.address = options.process + ":1";
    options.expected_sites = static_cast<std::uint32_t>(rates.size());
    options.elements = kElements;
    options.data.chunk_elements = 8'192;
    options.data.tile_elements = 8'192;
    options.data.least_window_bytes = std::size_t{64} * 8'192 * sizeof(float);
    options.last_round = RoundId{kRounds};
    options.idle = options.damaged_parts = 0;
    options.config.coordinators = {"c0:1"};
    options.seed = 77 + i;
    sites.push_back(std::make_unique<SimSite>(options, network, checkers, quiet));
    network.set_line(sites.back()->node(), {rates[i].up * kMbit, rates[i].down * kMbit});
    lines.push_back({SiteId{static_cast<std::uint32_t>(i)}, rates[i].up * kMbit, rates[i].down * kMbit});
    sites.back()->start();
  }
  Exchanges taken;
  const auto over = [&] {
    return std::all_of(sites.begin(), sites.end(), [](const auto& site) { return site->report().over; });
  };
  while (!over() && network.now() < TimePoint(Duration(600'000'000)) && network.run_one()) {
    if (coordinator.members() == rates.size()) taken.status = coordinator.status();
  }
  EXPECT_TRUE(checkers.failures().empty()) << checkers.failures().front();
  EXPECT_TRUE(over()) << coordinator.status();
  taken.least = kElements * sizeof(float) * protocol::least_exchange_time(lines, 1);
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    TimePoint began = kNever;
    TimePoint ended{};
    for (const auto& site : sites) {
      const auto& exchange = site->report().exchanges.at(RoundId{round});
      began = std::min(began, exchange.began);
      ended = std::max(ended, exchange.ended);
    }
    taken.seconds.push_back(static_cast<double>((ended - began).count()) / 1e6);
  }
  return taken;
}

// The ratio of the last round to the least there could be.
double ratio_of(const char* what, const std::vector<Rates>& rates) {
  const Exchanges equal = exchange_over(rates, true);
  const Exchanges filled = exchange_over(rates, false);
  std::printf("%s: at least %.3f s; equal shares %.3f s; by measured rates, round by round:", what, filled.least,
              equal.seconds.back());
  for (const double seconds : filled.seconds) std::printf(" %.3f", seconds);
  const double ratio = filled.seconds.back() / filled.least;
  std::printf(" s, that is %.3f times the least\n", ratio);
  EXPECT_LT(filled.seconds.back(), equal.seconds.back());
  return ratio;
}

TEST(Lines, SevenFastSitesAndOneThin) {
  std::vector<Rates> rates(8, Rates{100, 100});
  rates[5] = {10, 10};
  EXPECT_LT(ratio_of("seven at 100 Mbit/s and one at 10", rates), 1.15);
}

TEST(Lines, ThreeSitesBehindThinWaysOutAndOneFast) {
  EXPECT_LT(ratio_of("three at 20 up, 100 down and one at 1000", {{20, 100}, {20, 100}, {1000, 1000}, {20, 100}}), 1.2);
}

TEST(Lines, EqualLinesKeepEqualShares) {
  const Exchanges taken = exchange_over(std::vector<Rates>(4, Rates{50, 50}), false);
  EXPECT_LT(taken.seconds.back(), 1.2 * taken.least);
  std::size_t quarters = 0;
  for (std::size_t at = 0; (at = taken.status.find("\"share\":0.25,", at)) != std::string::npos; ++at) ++quarters;
  EXPECT_EQ(quarters, 4U) << taken.status;
}

}  // namespace
}  // namespace collab::sim
