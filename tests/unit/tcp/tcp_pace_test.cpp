// The caps, and the search for the number of connections, in time that the test moves.
#include "transport/tcp/tcp_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "core/base/prng.h"

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
  LinkPace::Sight last;
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
      LinkPace::Sight sight = last;
      sight.delivered = static_cast<std::uint64_t>(heard);
      sight.way_out.reset();
      pace.observe(clock.now(), sight);
    }
    dropped += queue;
    queue = 0;
  }
  void look(double heard, bool backlogged) {
    const auto time = [&](double seconds) { return Duration(static_cast<std::int64_t>(seconds * 1e6)); };
    LinkPace::Sight sight;
    sight.delivered = static_cast<std::uint64_t>(heard / packet) * static_cast<std::uint64_t>(packet);
    sight.resent = static_cast<std::uint64_t>(heard / (1 - loss) * loss + dropped);
    sight.backlogged = backlogged;
    sight.way_out = way + time(queue / rate + jitter * prng.uniform()) - std::chrono::hours(1);
    sight.round_trip = 2 * way + time(queue / rate + back_queue + jitter * prng.uniform());
    pace.observe(clock.now(), sight);
    last = sight;
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

TEST(TcpLinkPace, JitterAndALongerWayStarveNobody) {
  Line line;
  line.jitter = 0.03;
  line.run(5);
  EXPECT_GT(line.share(20), 0.9);
  line.jitter = 0;
  line.way = milliseconds(90);
  line.run(5);
  EXPECT_GT(line.share(20), 0.95);
}

TEST(TcpLinkPace, WhoIsNotLimitedByTheLineIsNotPaced) {
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

// Sites that all send to all: a link passes its site's queue, the way, and the queue before the other site. Half of
// what it carries in a round can be sent at once, the rest as that of all others arrives, as means do.
struct Mesh {
  struct Link {
    LinkPace pace;
    double left = 0, given = 0, base = 0, start = 0;
    double sent = 0, dropped = 0, arrived = 0, heard = 0;
    double near = 0, far = 0;  // in the two queues
    std::deque<double> out, back;
  };
  explicit Mesh(std::size_t count) : sites(count), links(count * count) {}
  [[nodiscard]] Link& at(std::size_t from, std::size_t to) { return links[from * sites + to]; }
  void each(const auto& visit) {
    for (std::size_t i = 0; i < sites; ++i)
      for (std::size_t j = 0; j < sites; ++j)
        if (i != j) visit(i, j, at(i, j));
  }

  // Of the time that a round takes, the share that the bytes of a site need.
  double round(double bytes) {
    each([&](std::size_t, std::size_t, Link& link) {
      link.left = link.given = 0;
      link.base = link.arrived;
      link.start = 100 * prng.uniform();
    });
    const double amount = bytes / static_cast<double>(sites - 1);
    int ms = 0;
    for (bool done = false; !done && ms < 100'000; ++ms) {
      for (std::size_t i = 0; i < sites; ++i) give(i, amount, ms);
      step(ms);
      done = true;
      each([&](std::size_t, std::size_t, Link& link) { done &= link.arrived - link.base > amount - 1; });
    }
    for (int pause = 0; pause < 600; ++pause) step(pause);
    return bytes / rate / (ms / 1e3);
  }

 private:
  void give(std::size_t site, double amount, int ms) {
    double means = amount / 2;
    for (std::size_t k = 0; k < sites; ++k)
      if (k != site) means = std::min(means, at(k, site).arrived - at(k, site).base);
    for (std::size_t j = 0; j < sites; ++j) {
      Link& link = at(site, j);
      if (j == site || ms < link.start) continue;
      const double now = amount / 2 + (means > amount / 2 - 1 ? amount / 2 : std::floor(means / kChunk) * kChunk);
      link.left += std::max(0.0, now - link.given);
      link.given = std::max(now, link.given);
    }
  }
  // One queue of a site: what does not fit goes back to the senders, what is served goes on.
  void serve(std::size_t site, bool out) {
    const auto link_of = [&](std::size_t k) -> Link& { return out ? at(site, k) : at(k, site); };
    double all = 0;
    for (std::size_t k = 0; k < sites; ++k) all += out ? link_of(k).near : link_of(k).far;
    const double kept = std::min(1.0, kQueue * rate / std::max(all, 1.0));
    const double served = std::min(1.0, rate / 1000 / std::max(all * kept, 1.0));
    for (std::size_t k = 0; k < sites; ++k) {
      if (k == site) continue;
      Link& link = link_of(k);
      double& queue = out ? link.near : link.far;
      link.dropped += queue * (1 - kept);
      link.left += queue * (1 - kept);
      const double through = queue * kept * served;
      queue = queue * kept - through;
      if (out) {
        link.out.push_back(through);
      } else {
        link.arrived += through;
        link.back.push_back(link.arrived);
      }
    }
  }
  void step(int ms) {
    clock.advance(milliseconds(1));
    each([&](std::size_t, std::size_t, Link& link) {
      const double limit = link.pace.rate() > 0 ? link.pace.rate() / 1000 : rate * 3 / 1000;
      const double room = std::max(0.0, 4e6 - (link.sent - link.dropped - link.heard));
      const double now = std::min({limit * (0.5 + prng.uniform()), room, link.left});
      link.left -= now;
      link.sent += now;
      link.near += now;
    });
    for (std::size_t i = 0; i < sites; ++i) serve(i, true);
    each([&](std::size_t, std::size_t, Link& link) {
      if (link.out.size() <= kWay) return;
      link.far += link.out.front();
      link.out.pop_front();
    });
    for (std::size_t i = 0; i < sites; ++i) serve(i, false);
    each([&](std::size_t, std::size_t, Link& link) {
      if (link.back.size() <= kWay) return;
      link.heard = link.back.front();
      link.back.pop_front();
    });
    if (ms % 50 == 0) each([&](std::size_t i, std::size_t j, Link& link) { look(i, j, link); });
  }
  void look(std::size_t from, std::size_t to, Link& link) {
    double there = 0, back = 0;
    for (std::size_t k = 0; k < sites; ++k) {
      there += at(from, k).near + at(k, to).far;
      back += at(to, k).near + at(k, from).far;
    }
    const auto time = [&](double bytes) { return Duration(static_cast<std::int64_t>(bytes / rate * 1e6)); };
    LinkPace::Sight sight;
    sight.delivered = static_cast<std::uint64_t>(link.heard / 1448) * 1448;
    sight.resent = static_cast<std::uint64_t>(link.dropped);
    sight.backlogged = link.left > 0;
    sight.way_out = milliseconds(kWay) + time(there) - std::chrono::hours(1);
    sight.round_trip = 2 * milliseconds(kWay) + time(there + back);
    link.pace.observe(clock.now(), sight);
  }

  static constexpr double kChunk = 128 << 10;
  static constexpr double kQueue = 0.1;  // seconds
  static constexpr std::size_t kWay = 50;
  const double rate = 12e6;
  const std::size_t sites;
  std::vector<Link> links;
  ManualClock clock;
  Prng prng{7};
};

TEST(TcpLinkPace, LinksThatShareLinesAreDoneTogether) {
  for (const std::size_t sites : {2U, 3U, 4U, 8U}) {
    Mesh mesh(sites);
    for (int warm = 0; warm < 5; ++warm) static_cast<void>(mesh.round(140e6));
    double worst = 1;
    for (int again = 0; again < 3; ++again) worst = std::min(worst, mesh.round(140e6));
    EXPECT_GT(worst, 0.93) << sites << " sites";
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
