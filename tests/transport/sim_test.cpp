// The simulator's network: the suite, and what only it can do.
#include "tests/sim/sim_transport.h"
#include "tests/transport/conformance.h"

namespace collab::testing {
namespace {

using sim::Network;
using sim::NetworkOptions;
using sim::NodeId;
using sim::SimTransport;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr NetworkOptions kNear{.delay_min = milliseconds(1), .delay_mean = milliseconds(2), .bytes_per_second = 125e6};

class SimWorld final : public World {
 public:
  explicit SimWorld(const NetworkOptions& options) : network_(options, 1) {}
  std::unique_ptr<Transport> make(const std::string&) override { return std::make_unique<SimTransport>(network_); }
  [[nodiscard]] std::string any_port(const std::string& host) const override { return host + ":0"; }
  [[nodiscard]] std::string nobody() const override { return "nobody:1"; }
  std::optional<std::string> silent() override {
    const NodeId node = network_.add();
    network_.isolate(node, TimePoint(seconds(3'600)));
    return *network_.listen(node, "silent:1");
  }
  bool step() override { return network_.run_one(); }

 private:
  Network network_;
};

Subject subject(const std::string& name, const NetworkOptions& options) {
  return {name, [options] { return std::make_unique<SimWorld>(options); }, false, 16, nullptr};
}

INSTANTIATE_TEST_SUITE_P(Sim, TransportConformance,
                         ::testing::Values(subject("near", kNear),
                                           subject("far", {milliseconds(50), milliseconds(200), 50e6})),
                         subject_name);

class SimTest : public ::testing::Test {
 protected:
  void add(const std::string& host) {
    Peer& peer = peers_[host];
    auto transport = std::make_unique<SimTransport>(*network_);
    nodes_[host] = transport->node();
    peer.transport = std::move(transport);
    ASSERT_TRUE(peer.transport->start(&peer.seen).ok());
    peer.address = *peer.transport->listen(host + ":1");
  }
  LinkId link(const std::string& from, const std::string& to) {
    const LinkId link = peers_[from].transport->connect(to + ":1", seconds(1));
    run_for(milliseconds(200));
    EXPECT_TRUE(peers_[from].seen.connected(link));
    return link;
  }
  void send(const std::string& from, LinkId link, Lane lane, std::uint64_t number, std::size_t bytes = 0) {
    peers_[from].transport->send(link, make_message(*pool_, lane, number, 16, bytes), 0);
  }
  void run_for(Duration time) {
    bool over = false;
    network_->at(network_->now() + time, [&over] { over = true; });
    while (!over && network_->run_one()) {
    }
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers(const std::string& at) {
    std::vector<std::uint64_t> numbers;
    for (const auto& entry : peers_[at].seen.received()) numbers.push_back(number_of(entry.message));
    return numbers;
  }

  const std::unique_ptr<Network> network_ = std::make_unique<Network>(kNear, 1);
  const std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::map<std::string, NodeId> nodes_;
  std::map<std::string, Peer> peers_;
};

TEST_F(SimTest, TimeIsVirtualAndBandwidthCounts) {
  add("a");
  add("b");
  const LinkId ab = link("a", "b");
  for (std::uint64_t i = 0; i < 10; ++i) send("a", ab, Lane::kData, i, 12'500'000);  // 125 MB at 125 MB/s
  send("a", ab, Lane::kControl, 10);
  run_for(milliseconds(80));
  EXPECT_EQ(peers_["b"].seen.messages(), 1U) << "control does not wait for data";
  run_for(milliseconds(900));
  EXPECT_EQ(peers_["b"].seen.messages(), 10U);
  run_for(milliseconds(120));
  EXPECT_EQ(peers_["b"].seen.messages(), 11U);
}

TEST_F(SimTest, ASplitHoldsMessagesBackAndLosesNone) {
  for (const auto* host : {"a", "b", "c"}) add(host);
  const LinkId ab = link("a", "b");
  const LinkId cb = link("c", "b");
  network_->split({true, false, false}, network_->now() + seconds(100));
  send("a", ab, Lane::kData, 1);
  send("a", ab, Lane::kData, 2);
  send("c", cb, Lane::kData, 7);
  run_for(seconds(99));
  EXPECT_EQ(numbers("b"), std::vector<std::uint64_t>{7}) << "c's alone";
  run_for(seconds(2));
  EXPECT_EQ(numbers("b"), (std::vector<std::uint64_t>{7, 1, 2}));
  EXPECT_EQ(peers_["a"].seen.closed_count(), 0U);
}

TEST_F(SimTest, ACutEndsTheLinkAndANewOneCanBeMade) {
  add("a");
  add("b");
  const LinkId ab = link("a", "b");
  Prng choice(1);
  network_->cut_links(nodes_["a"], choice);
  run_for(seconds(1));
  ASSERT_TRUE(peers_["a"].seen.closed(ab));
  EXPECT_EQ(peers_["a"].seen.closed(ab)->code(), StatusCode::kUnavailable);
  EXPECT_EQ(peers_["b"].seen.closed_count(), 1U);
  send("a", link("a", "b"), Lane::kControl, 3);
  run_for(seconds(1));
  EXPECT_EQ(peers_["b"].seen.messages(), 1U);
}

TEST_F(SimTest, ADeadProcessIsNoticedAndAVanishedHostIsNot) {
  for (const auto* host : {"a", "b", "c"}) add(host);
  const LinkId ba = link("b", "a");
  const LinkId bc = link("b", "c");
  network_->kill(nodes_["a"], true);
  network_->kill(nodes_["c"], false);
  run_for(seconds(1));
  EXPECT_TRUE(peers_["b"].seen.closed(ba));
  EXPECT_FALSE(peers_["b"].seen.closed(bc));
  EXPECT_EQ(peers_["a"].seen.closed_count(), 0U) << "the dead are told nothing";
  const LinkId again = peers_["b"].transport->connect("c:1", seconds(2));
  run_for(seconds(3));
  ASSERT_TRUE(peers_["b"].seen.closed(again));
  EXPECT_EQ(peers_["b"].seen.closed(again)->code(), StatusCode::kTimeout);
}

TEST_F(SimTest, MessagesToAStoppedProcessWaitUntilItContinues) {
  add("a");
  add("b");
  const LinkId ab = link("a", "b");
  network_->pause(nodes_["b"], network_->now() + seconds(10));
  send("a", ab, Lane::kControl, 1);
  run_for(seconds(1));
  peers_["a"].transport->close(ab);
  run_for(seconds(8));
  EXPECT_EQ(peers_["b"].seen.messages(), 0U);
  run_for(seconds(2));
  EXPECT_EQ(peers_["b"].seen.messages(), 1U);
  EXPECT_EQ(peers_["b"].seen.closed_count(), 1U);
}

TEST_F(SimTest, ClocksDriftAndJump) {
  add("a");
  const NodeId a = nodes_["a"];
  const sim::SimClock clock(*network_, a);
  std::vector<TimePoint> woken;
  network_->on_timer(a, [&] { woken.push_back(network_->now()); });
  network_->set_clock_rate(a, 0.5);
  network_->wake(a, TimePoint(seconds(1)));  // by its own clock
  run_for(seconds(4));
  EXPECT_EQ(clock.now(), TimePoint(seconds(2)));
  EXPECT_EQ(woken, std::vector{TimePoint(seconds(2))});
  network_->wake(a, TimePoint(seconds(30)));
  network_->jump_clock(a, seconds(60));
  run_for(seconds(1));
  EXPECT_EQ(clock.now(), TimePoint(seconds(62) + milliseconds(500)));
  EXPECT_EQ(woken.size(), 2U);
}

TEST_F(SimTest, TheSameSeedGivesTheSameRun) {
  const auto run = [&](std::uint64_t seed) {
    Network network(kNear, seed);
    Peer a, b;
    a.transport = std::make_unique<SimTransport>(network);
    b.transport = std::make_unique<SimTransport>(network);
    std::vector<std::int64_t> times;
    b.seen.when_message = [&](LinkId, const TransportMessage&) {
      times.push_back(network.now().time_since_epoch().count());
    };
    EXPECT_TRUE(a.transport->start(&a.seen).ok() && b.transport->start(&b.seen).ok());
    const std::string address = *b.transport->listen("b:0");
    const LinkId link = a.transport->connect(address, seconds(9));
    for (std::uint64_t i = 0; i < 50; ++i) a.transport->send(link, make_message(*pool_, Lane::kData, i, 16, 999), 0);
    while (network.run_one()) {
    }
    EXPECT_EQ(times.size(), 50U);
    return times;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

}  // namespace
}  // namespace collab::testing
