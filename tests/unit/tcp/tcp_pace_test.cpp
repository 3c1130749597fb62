// The caps, and the search for the number of connections, in time that the test moves.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "core/base/prng.h"
#include "transport/tcp/pace/connection_search.h"
#include "transport/tcp/pace/link_pace.h"
#include "transport/tcp/pace/queue_delay.h"
#include "transport/tcp/pace/token_bucket.h"

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

TEST(TcpTokenBucket, IsAlwaysOpenWithoutACap) {
  TokenBucket bucket(0);
  bucket.take(1 << 30);
  EXPECT_TRUE(bucket.open(TimePoint()));
}

// A line with a queue, in steps of a millisecond, and senders that fill whatever their windows and the pace allow.
// What arrives is known half a round trip after it has arrived.
struct Line {
  double rate = 12e6;  // bytes a second
  Duration way = milliseconds(50);
  double queue_seconds = 0.1;  // that fit
  double loss = 0;
  double window = 20e6;   // of the senders, bytes in flight
  double back_queue = 0;  // seconds, of others, on the way back
  double jitter = 0;      // seconds, up to this, of both ways
  double packet = 1448;   // bytes

  ManualClock clock;
  LinkPace pace;
  LinkPace::PathSample last;
  Prng prng{7};
  double queue = 0;  // bytes
  double dropped = 0, lost = 0, sent = 0, arrived = 0, idle = 0;
  std::deque<double> known;  // what will be known a way later, newest last

  void run(double seconds, bool backlogged = true) {
    if (sent == 0) look(0, false);  // a sign of life
    for (int ms = 0; ms < static_cast<int>(seconds * 1000); ++ms) {
      clock.advance(milliseconds(1));
      const double heard = known.empty() ? 0 : known.front();
      const double limit = pace.rate() > 0 ? pace.rate() / 1000 : rate * 3 / 1000;
      const double room = std::max(0.0, window - (sent - lost - dropped - heard));
      const double now = backlogged ? std::min(limit, room) : 0;
      sent += now;
      queue += now;
      const double most = queue_seconds * rate;
      dropped += std::max(0.0, queue - most);
      queue = std::min(queue, most);
      const double served = std::min(queue, rate / 1000);
      if (backlogged && served < rate / 1000) idle += rate / 1000 - served;
      queue -= served;
      arrived += served * (1 - loss);
      lost += served * loss;
      known.push_back(arrived);
      while (known.size() > static_cast<std::size_t>(2 * way / milliseconds(1))) known.pop_front();
      if (clock.now().time_since_epoch() % milliseconds(50) == Duration(0)) look(heard, backlogged);
    }
  }
  // Pings get lost, and round trips are old news.
  void black_hole(double seconds, bool noticed) {
    const double heard = known.back();
    for (int ms = 0; ms < static_cast<int>(seconds * 1000); ms += 50) {
      clock.advance(milliseconds(50));
      if (noticed) {
        pace.pause();
        continue;
      }
      LinkPace::PathSample path_sample = last;
      path_sample.delivered = static_cast<std::uint64_t>(heard);
      path_sample.one_way_delay.reset();
      pace.observe(clock.now(), path_sample);
    }
    dropped += queue;
    queue = 0;
  }
  void look(double heard, bool backlogged) {
    const auto time = [&](double seconds) { return Duration(static_cast<std::int64_t>(seconds * 1e6)); };
    LinkPace::PathSample path_sample;
    path_sample.delivered = static_cast<std::uint64_t>(heard / packet) * static_cast<std::uint64_t>(packet);
    path_sample.resent = static_cast<std::uint64_t>(heard / (1 - loss) * loss + dropped);
    path_sample.backlogged = backlogged;
    path_sample.one_way_delay = way + time(queue / rate + jitter * prng.uniform()) - std::chrono::hours(1);
    path_sample.round_trip = 2 * way + time(queue / rate + back_queue + jitter * prng.uniform());
    pace.observe(clock.now(), path_sample);
    last = path_sample;
  }
  // Of what the line could carry meanwhile.
  double share(double seconds) {
    const double before = arrived;
    run(seconds);
    return (arrived - before) / (seconds * rate);
  }
};

TEST(TcpLinkPace, FillsTheLineAndNotItsQueue) {
  for (const int way_ms : {2, 10, 50, 150}) {
    for (const double rate : {0.6e6, 12e6, 120e6}) {
      Line line;
      line.way = milliseconds(way_ms);
      line.rate = rate;
      line.window = 3 * rate * 0.3;
      line.run(5);
      const double dropped = line.dropped;
      EXPECT_GT(line.share(20), 0.985) << way_ms << " ms, " << rate;
      EXPECT_LT(line.dropped - dropped, way_ms < 100 ? 1 : 0.005 * 20 * rate) << way_ms << " ms, " << rate;
    }
  }
}

TEST(TcpLinkPace, LossIsNoQueue) {
  for (const double loss : {0.001, 0.01, 0.1}) {
    Line line;
    line.loss = loss;
    line.run(5);
    EXPECT_GT(line.share(20), (1 - loss) * 0.97) << loss;
  }
}

TEST(TcpLinkPace, ALineThatBecameFasterIsFoundWithinSeconds) {
  Line line;
  line.rate = 0.6e6;
  line.run(10);
  EXPECT_NEAR(line.pace.rate(), 0.6e6, 0.1e6);
  line.rate = 12e6;
  line.run(5);
  EXPECT_GT(line.share(5), 0.95);
}

TEST(TcpLinkPace, ALineThatBecameSlowerIsFollowedAtOnce) {
  Line line;
  line.window = 2.4e6;
  line.run(10);
  line.rate = 0.6e6;
  line.run(3);
  EXPECT_LT(line.pace.rate(), 0.9e6);
  const double dropped = line.dropped;
  EXPECT_GT(line.share(10), 0.9);
  EXPECT_LT(line.dropped - dropped, 0.05 * 6e6);
}

// Nothing passes for a while, and then all of it again.
TEST(TcpLinkPace, ABlackHoleIsForgottenWithinSeconds) {
  for (const double black : {0.5, 3.0, 30.0}) {
    for (const bool noticed : {false, true}) {  // the link has given its connections up meanwhile
      Line line;
      line.run(10);
      line.black_hole(black, noticed);
      line.run(2);
      EXPECT_GT(line.share(5), 0.95) << black << " s, " << noticed;
    }
  }
}

TEST(TcpLinkPace, ALineThatBarelyLivesIsLeftToItself) {
  Line line;
  line.rate = 0.02e6;
  line.run(10);
  EXPECT_EQ(line.pace.rate(), 0);
  line.rate = 12e6;
  line.run(3);
  EXPECT_GT(line.share(5), 0.95);
}

TEST(TcpLinkPace, AQueueOnTheWayBackIsNotOurs) {
  Line line;
  line.run(5);
  line.back_queue = 0.08;
  EXPECT_GT(line.share(20), 0.97);
}

TEST(TcpLinkPace, JitterAndALongerPathDoNotStarveALink) {
  Line line;
  line.jitter = 0.03;
  line.run(5);
  EXPECT_GT(line.share(20), 0.9);
  line.jitter = 0;
  line.way = milliseconds(90);
  line.run(5);
  EXPECT_GT(line.share(20), 0.95);
}

TEST(TcpLinkPace, ASenderNotLimitedByTheLineIsNotPaced) {
  Line line;
  line.window = 0.5 * 12e6 * 0.1;  // half of what fills it
  line.run(20);
  EXPECT_EQ(line.pace.rate(), 0);
  EXPECT_EQ(line.queue, 0);
}

TEST(TcpLinkPace, APauseChangesNothing) {
  Line line;
  line.run(10);
  const double before = line.pace.rate();
  line.run(30, false);
  EXPECT_EQ(line.pace.rate(), before);
  EXPECT_GT(line.share(2), 0.95);
}

// Beside one that waits through the grace for a dead peer, or feeds one that joins.
TEST(TcpLinkPace, ALinkWithLittleOfAnExchangeIsSoonAtFullRate) {
  for (const int way_ms : {10, 50}) {
    Line line;
    line.way = milliseconds(way_ms);
    line.run(5);
    line.pace.exchange_ended(0.001);
    EXPECT_GT(line.pace.rate(), 0);
    line.run(0.6, false);
    EXPECT_GT(line.share(2), 0.6) << way_ms << " ms";
  }
}

// A line that gives `each` to every connection, up to `all`.
std::uint16_t settles_at(std::uint16_t start, std::uint16_t most, double each, double all) {
  ManualClock clock;
  ConnectionSearch search(start, most);
  double bytes = 0;
  for (int i = 0; i < 2000; ++i) {
    clock.advance(milliseconds(50));
    bytes += std::min(all, each * search.wanted()) * 0.05;
    search.observe(clock.now(), static_cast<std::uint64_t>(bytes), true, milliseconds(100), search.wanted(),
                   each * search.wanted() >= all);
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
      search.observe(clock.now(), static_cast<std::uint64_t>(bytes), true, milliseconds(50), search.wanted(),
                     each * search.wanted() >= all);
    }
    return search.wanted();
  };
  EXPECT_EQ(run(20e6, 12e6), 2);
  EXPECT_EQ(run(1e6, 12e6), 16);
}

// Losses by chance hide what more connections bring, now and then; a line that is full has nothing to bring.
TEST(TcpConnectionSearch, LooksAgainWhileTheLineIsNotFull) {
  const auto run = [](double all, int unlucky) {
    ManualClock clock;
    ConnectionSearch search(2, 64);
    double bytes = 0;
    int moves = 0;
    for (int i = 0; i < 4000; ++i) {
      clock.advance(milliseconds(50));
      bytes += (i < unlucky ? 0.8e6 : std::min(all, 0.4e6 * search.wanted())) * 0.05;
      const std::uint16_t before = search.wanted();
      const bool queue = 0.4e6 * search.wanted() >= all;
      search.observe(clock.now(), static_cast<std::uint64_t>(bytes), true, milliseconds(100), before, queue);
      moves += search.wanted() != before ? 1 : 0;
    }
    return std::pair(search.wanted(), moves);
  };
  EXPECT_EQ(run(12e6, 200).first, 32) << "found later";
  EXPECT_EQ(run(12e6, 0), std::pair(std::uint16_t{32}, 6)) << "up to 64 and back, and no more";
}

TEST(TcpConnectionSearch, WithoutABacklogNothingIsLearnt) {
  ManualClock clock;
  ConnectionSearch search(2, 64);
  for (int i = 0; i < 500; ++i) {
    clock.advance(milliseconds(50));
    search.observe(clock.now(), static_cast<std::uint64_t>(i) * 1000, i % 3 != 0, milliseconds(10), 2, false);
  }
  EXPECT_EQ(search.wanted(), 2);
}

TEST(TcpQueueDelay, IsTheSmallerOfTwoEstimates) {
  ManualClock clock;
  QueueDelay queue;
  EXPECT_FALSE(queue.known());
  queue.note(clock.now(), milliseconds(100), milliseconds(-500));  // clocks differ
  EXPECT_TRUE(queue.known());
  EXPECT_EQ(queue.seconds(), 0);
  queue.end_epoch();
  queue.note(clock.now(), milliseconds(140), milliseconds(-470));
  EXPECT_DOUBLE_EQ(queue.seconds(), 0.03);
  queue.note(clock.now(), milliseconds(110), std::nullopt);
  EXPECT_DOUBLE_EQ(queue.seconds(), 0.01);
}

TEST(TcpQueueDelay, ALongerWayIsNoQueueOnceTheShorterOneIsForgotten) {
  ManualClock clock;
  QueueDelay queue;
  queue.note(clock.now(), milliseconds(100), std::nullopt);
  queue.note(clock.now(), milliseconds(130), std::nullopt);
  EXPECT_DOUBLE_EQ(queue.seconds(), 0.03);
  for (int i = 0; i < 250; ++i) {
    clock.advance(milliseconds(100));
    queue.note(clock.now(), milliseconds(130), std::nullopt);
  }
  EXPECT_EQ(queue.seconds(), 0);
}

}  // namespace
}  // namespace collab::tcp
