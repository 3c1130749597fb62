// Links that share lines, in time that the test moves. Each is paced by itself, and they should finish together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "core/base/prng.h"
#include "transport/tcp/pace/backlog.h"
#include "transport/tcp/pace/link_pace.h"
#include "transport/tcp/pace/remaining.h"

namespace collab::tcp {
namespace {

using std::chrono::milliseconds;

// Sites that all send to all, over connections that take turns: a link passes its site's queue, the way, and the queue
// before the other site. Half of what it carries in a round can be sent at once, the rest as that of all others
// arrives, as means do.
struct Mesh {
  struct Link {
    LinkPace pace;
    Backlog backlog;
    int looks = 0;  // while there is a backlog
    double left = 0, given = 0, base = 0, start = 0;
    double sent = 0, dropped = 0, arrived = 0, heard = 0;
    double near = 0, far = 0;  // in the two queues
    std::deque<double> out, back;
  };
  explicit Mesh(std::size_t count, double bytes_per_second = 12e6, std::uint64_t seed = 7)
      : rate(bytes_per_second), sites(count), links(count * count), backlogs(count), prng(seed) {}
  [[nodiscard]] Link& at(std::size_t from, std::size_t to) { return links[from * sites + to]; }
  void each(const auto& visit) {
    for (std::size_t i = 0; i < sites; ++i)
      for (std::size_t j = 0; j < sites; ++j)
        if (i != j) visit(i, j, at(i, j));
  }

  // Of the time that a round takes, the share that the bytes of a site need.
  double round(double bytes) {
    amount_ = bytes / static_cast<double>(sites - 1);
    each([&](std::size_t, std::size_t, Link& link) {
      link.left = link.given = 0;
      link.base = link.arrived;
      link.start = 100 * prng.uniform();
    });
    const double amount = amount_;
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
      // Without a pace, as BBR: it tries a quarter more than it has had.
      const double limit = link.pace.rate() > 0 ? link.pace.rate() / 1000 : rate * 1.25 / 1000;
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
    if (ms % 50 == 0) tick();
  }
  void tick() {
    each([&](std::size_t i, std::size_t j, Link& link) { look(i, j, link); });
    for (std::size_t i = 0; i < sites; ++i) {
      bool waits = false;
      for (std::size_t k = 0; k < sites; ++k) waits = waits || at(i, k).left > 0;
      backlogs[i].note(clock.now(), waits);
      if (!backlogs[i].over(clock.now())) continue;
      for (std::size_t k = 0; k < sites; ++k) at(i, k).pace.exchange_ended(at(i, k).backlog.take_share(backlogs[i]));
      backlogs[i] = {};
    }
  }
  [[nodiscard]] double to_go(const Link& link) const { return amount_ - (link.heard - link.base); }
  double behind(std::size_t from, const Link& link) {
    Remaining remaining;
    for (std::size_t k = 0; k < sites; ++k) {
      if (k != from && at(from, k).left > 0) remaining.add(to_go(at(from, k)), at(from, k).pace.line());
    }
    return link.left > 0 ? remaining.behind(to_go(link), link.pace.line()) : 0;
  }
  void look(std::size_t from, std::size_t to, Link& link) {
    double there = 0, back = 0;
    for (std::size_t k = 0; k < sites; ++k) {
      there += at(from, k).near + at(k, to).far;
      back += at(to, k).near + at(k, from).far;
    }
    const auto time = [&](double bytes) { return Duration(static_cast<std::int64_t>(bytes / rate * 1e6)); };
    LinkPace::PathSample path_sample;
    path_sample.delivered = static_cast<std::uint64_t>(link.heard / 1448) * 1448;
    path_sample.resent = static_cast<std::uint64_t>(link.dropped);
    path_sample.backlogged = link.left > 0;
    path_sample.behind = behind(from, link);
    link.backlog.note(clock.now(), path_sample.backlogged);
    path_sample.one_way_delay = milliseconds(kWay) + time(there) - std::chrono::hours(1);
    // At first those whose turn it is know of no round trip.
    if (link.left > 0 && ++link.looks % 102 > 2) path_sample.round_trip = 2 * milliseconds(kWay) + time(there + back);
    link.pace.observe(clock.now(), path_sample);
  }

  static constexpr double kChunk = 128 << 10;
  static constexpr double kQueue = 0.1;  // seconds
  static constexpr std::size_t kWay = 50;
  double amount_ = 0;
  const double rate;
  const std::size_t sites;
  std::vector<Link> links;
  std::vector<Backlog> backlogs;  // of a site's links together
  ManualClock clock;
  Prng prng;
};

TEST(TcpLinkPace, LinksThatShareLinesAreDoneTogether) {
  for (const std::size_t sites : {2U, 3U, 4U, 8U}) {
    Mesh mesh(sites);
    for (int warm = 0; warm < 6; ++warm) static_cast<void>(mesh.round(140e6));
    double worst = 1;
    for (int again = 0; again < 4; ++again) worst = std::min(worst, mesh.round(140e6));
    EXPECT_GT(worst, 0.93) << sites << " sites";
  }
}

// Whatever parts they have got in the first rounds.
TEST(TcpLinkPace, LinksThatShareLinesAreSoonDoneTogether) {
  const std::vector<std::pair<std::size_t, double>> asked{{2, 0.98}, {3, 0.98}, {4, 0.975}, {8, 0.88}};
  for (const auto& [sites, least] : asked) {
    double mean = 0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Mesh mesh(sites, 12e6, seed);
      for (int warm = 0; warm < 3; ++warm) static_cast<void>(mesh.round(140e6));
      for (int again = 0; again < 4; ++again) mean += mesh.round(140e6) / 20;
    }
    EXPECT_GT(mean, least) << sites << " sites";
  }
}

// An exchange of half a second is mostly climb and settling: its mean must not become the next one's start, and so on.
TEST(TcpLinkPace, ShortExchangesDoNotGetSlower) {
  for (const std::size_t sites : {2U, 3U, 4U}) {
    Mesh mesh(sites);
    for (int warm = 0; warm < 3; ++warm) static_cast<void>(mesh.round(140e6));
    for (int round = 0; round < 5; ++round) static_cast<void>(mesh.round(6e6));
    double early = 0, late = 0;
    for (int round = 0; round < 5; ++round) early += mesh.round(6e6) / 5;
    for (int round = 0; round < 20; ++round) static_cast<void>(mesh.round(6e6));
    for (int round = 0; round < 5; ++round) late += mesh.round(6e6) / 5;
    EXPECT_GT(late, 0.9 * early) << sites << " sites";
    EXPECT_GT(late, 0.65) << sites << " sites";
  }
}

// A line on which no exchange is long: it is found over several, or its queue overflows in each.
TEST(TcpLinkPace, ShortExchangesFindTheLine) {
  Mesh mesh(2, 2.5e6);
  for (int warm = 0; warm < 5; ++warm) static_cast<void>(mesh.round(2e6));
  double dropped = 0;
  mesh.each([&](std::size_t, std::size_t, Mesh::Link& link) {
    EXPECT_GT(link.pace.rate(), 1.8e6);
    dropped -= link.dropped;
  });
  for (int round = 0; round < 5; ++round) static_cast<void>(mesh.round(2e6));
  mesh.each([&](std::size_t, std::size_t, Mesh::Link& link) { dropped += link.dropped; });
  EXPECT_LT(dropped, 0.01 * 10 * 2e6);
}

TEST(TcpBacklog, CountsWhatWasSeenOnly) {
  ManualClock clock;
  Backlog link, all;
  const auto tick = [&](milliseconds passed, bool waits, bool others) {
    clock.advance(passed);
    link.note(clock.now(), waits);
    all.note(clock.now(), waits || others);
  };
  tick(milliseconds(50), false, false);
  tick(std::chrono::minutes(10), false, true);  // nobody looked meanwhile
  for (int i = 0; i < 20; ++i) tick(milliseconds(50), true, false);
  EXPECT_FALSE(all.over(clock.now()));
  for (int i = 0; i < 11; ++i) tick(milliseconds(50), false, false);
  EXPECT_TRUE(all.over(clock.now()));
  EXPECT_NEAR(link.take_share(all), 0.8, 0.001);
}

// A link's part of a thin line is a few packets in a round trip: too few to tell much by, and yet all are paced.
TEST(TcpLinkPace, ThinLinksThatShareALineArePacedToo) {
  Mesh mesh(4, 0.4e6);
  for (int warm = 0; warm < 5; ++warm) static_cast<void>(mesh.round(4.8e6));
  EXPECT_GT(mesh.round(4.8e6), 0.85);
  mesh.each([](std::size_t from, std::size_t to, const Mesh::Link& link) {
    EXPECT_GT(link.pace.rate(), 0) << from << " to " << to;
  });
}

}  // namespace
}  // namespace collab::tcp
