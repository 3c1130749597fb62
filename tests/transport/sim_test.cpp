// The simulated network: the suite, and what only it can do.
#include "tests/transport/conformance.h"
#include "transport/sim/sim_transport.h"

namespace collab::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SimWorld final : public World {
 public:
  explicit SimWorld(SimOptions options) : network_(std::make_shared<SimNetwork>(options)) {}
  std::unique_ptr<Transport> make(const std::string& host) override { return make_sim_transport(network_, host); }
  [[nodiscard]] std::string any_port(const std::string& host) const override { return host + ":0"; }
  [[nodiscard]] std::string nobody() const override { return "nobody:1"; }
  std::optional<std::string> silent() override {
    network_->block("a", "silent");
    return "silent:1";
  }
  bool step() override { return network_->step(); }

 private:
  const std::shared_ptr<SimNetwork> network_;
};

Subject subject(const std::string& name, SimOptions options) {
  return {name, [options] { return std::make_unique<SimWorld>(options); }, false, 16, nullptr};
}

INSTANTIATE_TEST_SUITE_P(Sim, TransportConformance,
                         ::testing::Values(subject("near", {}), subject("lossy", {.seed = 7, .loss = 0.2})),
                         subject_name);

class SimTest : public ::testing::Test {
 protected:
  void add(const std::string& host) {
    Peer& peer = peers_[host];
    peer.transport = make_sim_transport(network_, host);
    ASSERT_TRUE(peer.transport->start(&peer.seen).ok());
    peer.address = *peer.transport->listen(host + ":1");
  }
  LinkId link(const std::string& from, const std::string& to) {
    const LinkId link = peers_[from].transport->connect(to + ":1", seconds(1));
    network_->run_until(network_->now() + milliseconds(100));
    EXPECT_TRUE(peers_[from].seen.connected(link));
    return link;
  }
  void send(const std::string& from, LinkId link, Lane lane, std::uint64_t number, std::size_t bytes = 0) {
    peers_[from].transport->send(link, make_message(*pool_, lane, number, 16, bytes), 0);
  }
  void run_for(Duration time) { network_->run_until(network_->now() + time); }

  const std::shared_ptr<SimNetwork> network_ = std::make_shared<SimNetwork>(SimOptions{});
  const std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::map<std::string, Peer> peers_;
};

TEST_F(SimTest, TimeIsVirtualAndBandwidthCounts) {
  add("a");
  add("b");
  const LinkId ab = link("a", "b");
  const TimePoint begun = network_->now();
  for (std::uint64_t i = 0; i < 10; ++i) send("a", ab, Lane::kData, i, 12'500'000);  // 125 MB at 125 MB/s
  send("a", ab, Lane::kControl, 10);
  network_->run_until(begun + milliseconds(10));
  EXPECT_EQ(peers_["b"].seen.messages(), 1U) << "control does not wait for data";
  network_->run_until(begun + milliseconds(990));
  EXPECT_EQ(peers_["b"].seen.messages(), 10U);
  network_->run_until(begun + milliseconds(1010));
  EXPECT_EQ(peers_["b"].seen.messages(), 11U);
}

TEST_F(SimTest, APartitionHoldsMessagesBackAndLosesNone) {
  for (const auto* host : {"a", "b", "c"}) add(host);
  const LinkId ab = link("a", "b");
  const LinkId cb = link("c", "b");
  send("a", ab, Lane::kData, 0);  // on the way when the way is blocked
  network_->partition({"a"});
  send("a", ab, Lane::kData, 1);
  send("c", cb, Lane::kData, 0);
  run_for(seconds(100));
  EXPECT_EQ(peers_["b"].seen.messages(), 1U) << "c's alone";
  network_->heal();
  run_for(seconds(1));
  ASSERT_EQ(peers_["b"].seen.messages(), 3U);
  EXPECT_EQ(number_of(peers_["b"].seen.received()[1].message), 0U);
  EXPECT_EQ(number_of(peers_["b"].seen.received()[2].message), 1U);
  EXPECT_EQ(peers_["a"].seen.closed_count(), 0U);
}

TEST_F(SimTest, ACutEndsTheLinkAndANewOneCanBeMade) {
  add("a");
  add("b");
  const LinkId ab = link("a", "b");
  network_->cut("a", "b");
  run_for(seconds(1));
  ASSERT_TRUE(peers_["a"].seen.closed(ab));
  EXPECT_EQ(peers_["a"].seen.closed(ab)->code(), StatusCode::kUnavailable);
  EXPECT_EQ(peers_["b"].seen.closed_count(), 1U);
  send("a", link("a", "b"), Lane::kControl, 3);
  run_for(seconds(1));
  EXPECT_EQ(peers_["b"].seen.messages(), 1U);
}

TEST_F(SimTest, ACrashIsSeenByTheOthersOnceTheWayIsOpen) {
  for (const auto* host : {"a", "b", "c"}) add(host);
  const LinkId ba = link("b", "a");
  const LinkId ca = link("c", "a");
  network_->block("c", "a");
  network_->crash("a");
  run_for(seconds(1));
  EXPECT_TRUE(peers_["b"].seen.closed(ba));
  EXPECT_FALSE(peers_["c"].seen.closed(ca));
  EXPECT_EQ(peers_["a"].seen.closed_count(), 0U) << "the dead are told nothing";
  network_->heal();
  run_for(seconds(1));
  EXPECT_TRUE(peers_["c"].seen.closed(ca));
}

TEST_F(SimTest, TheSameSeedGivesTheSameRun) {
  const auto run = [&](std::uint64_t seed) {
    auto network = std::make_shared<SimNetwork>(SimOptions{.seed = seed, .loss = 0.1});
    Peer a, b;
    a.transport = make_sim_transport(network, "a");
    b.transport = make_sim_transport(network, "b");
    std::vector<std::int64_t> times;
    b.seen.when_message = [&](LinkId, const TransportMessage&) {
      times.push_back(network->now().time_since_epoch().count());
    };
    EXPECT_TRUE(a.transport->start(&a.seen).ok() && b.transport->start(&b.seen).ok());
    const std::string address = *b.transport->listen("b:0");
    const LinkId link = a.transport->connect(address, seconds(9));
    for (std::uint64_t i = 0; i < 50; ++i) a.transport->send(link, make_message(*pool_, Lane::kData, i, 16, 999), 0);
    while (network->step()) {
    }
    EXPECT_EQ(times.size(), 50U);
    return times;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

}  // namespace
}  // namespace collab::testing
