// The caps, and the search for the number of connections, in time that the test moves.
#include "transport/tcp/tcp_pace.h"

#include <gtest/gtest.h>

#include <cmath>

namespace collab::tcp {
namespace {

using std::chrono::milliseconds;

TEST(TcpTokenBucket, LetsItsRateThrough) {
  ManualClock clock;
  TokenBucket bucket(10e6);
  std::uint64_t passed = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    while (bucket.open(clock.now())) {
      bucket.take(64 << 10);
      passed += 64 << 10;
    }
    EXPECT_GT(bucket.opens_at(clock.now()), clock.now());
    clock.advance(milliseconds(1));
  }
  EXPECT_NEAR(static_cast<double>(passed), 100e6, 2e6);
}

TEST(TcpTokenBucket, NoCap) {
  TokenBucket bucket(0);
  bucket.take(1 << 30);
  EXPECT_TRUE(bucket.open(TimePoint()));
}

// A line that gives `each` to every connection, up to `all`.
std::uint16_t settles_at(std::uint16_t start, std::uint16_t most, double each, double all) {
  ManualClock clock;
  ConnectionSearch search(start, most);
  double bytes = 0;
  for (int i = 0; i < 2000; ++i) {
    clock.advance(milliseconds(50));
    bytes += std::min(all, each * search.wanted()) * 0.05;
    search.observe(clock.now(), static_cast<std::uint64_t>(bytes), true, milliseconds(100), search.wanted());
  }
  return search.wanted();
}

TEST(TcpConnectionSearch, GrowsWhileItHelps) {
  EXPECT_EQ(settles_at(2, 64, 1e6, 12e6), 16);    // 12 are needed
  EXPECT_EQ(settles_at(2, 64, 0.1e6, 50e6), 64);  // all there may be
  EXPECT_EQ(settles_at(2, 4, 0.1e6, 50e6), 4);
  EXPECT_EQ(settles_at(2, 64, 20e6, 12e6), 2);  // the first ones fill the line
}

TEST(TcpConnectionSearch, LooksAgainWhenTheLineChanges) {
  ManualClock clock;
  ConnectionSearch search(2, 64);
  double bytes = 0;
  const auto run = [&](double each, double all) {
    for (int i = 0; i < 1000; ++i) {
      clock.advance(milliseconds(50));
      bytes += std::min(all, each * search.wanted()) * 0.05;
      search.observe(clock.now(), static_cast<std::uint64_t>(bytes), true, milliseconds(50), search.wanted());
    }
    return search.wanted();
  };
  EXPECT_EQ(run(20e6, 12e6), 2);
  EXPECT_EQ(run(1e6, 12e6), 16);
}

TEST(TcpConnectionSearch, WithoutABacklogNothingIsLearnt) {
  ManualClock clock;
  ConnectionSearch search(2, 64);
  for (int i = 0; i < 500; ++i) {
    clock.advance(milliseconds(50));
    search.observe(clock.now(), static_cast<std::uint64_t>(i) * 1000, i % 3 != 0, milliseconds(10), 2);
  }
  EXPECT_EQ(search.wanted(), 2);
}

}  // namespace
}  // namespace collab::tcp
